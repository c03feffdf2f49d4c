package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/checkfu/checkfu/internal/egress/lab"
)

// Where everything is. The lab's recorders (ledger, resolver) keep each event
// and would be full: what is measured has an origin and a resolver of its own.
var (
	egressResolver = netip.MustParseAddrPort("45.33.32.54:53")
	proxyAddr      = netip.MustParseAddr("10.201.0.1") // the guard's namespace, as the client's sees it
)

// The lab's own sinks have the ports of SinkPorts, at every address.
const (
	echoPort  = 9443
	bulkPort  = 9444
	firstPort = 3128 // of the proxies, one after the other
)

// egressNet is the network of all proxies: a client in one namespace, the
// proxies in the next, resolver and origin in a third, a veth pair between each
// two. No rule of a firewall is in the way.
type egressNet struct {
	lab     *lab.Lab
	client  *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
	closers []io.Closer
}

func newEgressNet(w *world) (_ *egressNet, err error) {
	l, err := lab.Open(lab.InsideListener)
	if err != nil {
		return nil, err
	}
	n := &egressNet{lab: l}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	// Thousands of connections end each second, in each of the two that connect.
	for _, ns := range []*lab.Namespace{l.Neighbor, l.Guard} {
		if err := errors.Join(ns.Set("ipv4/tcp_tw_reuse", "1"), ns.Set("ipv4/ip_local_port_range", "16384 65535")); err != nil {
			return nil, err
		}
	}
	for port, serve := range map[uint16]func(net.Conn){echoPort: echo, bulkPort: pour} {
		for side := range maxSides {
			ln, err := l.Public.Listen(netip.AddrPortFrom(originOf(side), port))
			if err != nil {
				return nil, err
			}
			n.closers = append(n.closers, ln)
			go accept(ln, serve)
		}
	}
	names, err := l.Public.ListenPacket(egressResolver)
	if err != nil {
		return nil, err
	}
	n.closers = append(n.closers, names)
	go answerNames(names)

	n.client = exec.Command(self(), loadCommand, w.dir)
	n.client.Stderr = os.Stderr
	if n.in, err = n.client.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := n.client.StdoutPipe()
	if err != nil {
		return nil, err
	}
	n.out = json.NewDecoder(out)
	return n, l.Neighbor.Do(n.client.Start)
}

// tell gives the client an order and waits for what came of it.
func (n *egressNet) tell(ctx context.Context, o order) (outcome, error) {
	defer context.AfterFunc(ctx, func() { _ = n.client.Process.Kill() })()
	var got outcome
	err := json.NewEncoder(n.in).Encode(o)
	if err == nil {
		err = n.out.Decode(&got)
	}
	switch {
	case err != nil:
		return got, errors.Join(fmt.Errorf("the client of the proxies: %w", err), ctx.Err())
	case got.Failures > 0:
		return got, fmt.Errorf("%s of %s by %q: %d failures, the first: %s", o.Do, o.Target, o.Proxy, got.Failures, got.Err)
	}
	return got, nil
}

func (n *egressNet) close() error {
	var err error
	if n.client != nil && n.client.Process != nil {
		n.in.Close()
		late := time.AfterFunc(5*time.Second, func() { _ = n.client.Process.Kill() })
		_ = n.client.Wait() // a client that was killed said why already
		late.Stop()
	}
	for _, c := range n.closers {
		err = errors.Join(err, c.Close())
	}
	n.lab.Close()
	return err
}

// maxSides is how many proxies there may be. Each has an origin of its own, so
// that none meets the ports that another used up.
const maxSides = 8

func originOf(side int) netip.Addr { return netip.AddrFrom4([4]byte{45, 33, 32, byte(100 + side)}) }
func hostOf(side int) string       { return fmt.Sprintf("side%d.test", side) }

// answerNames says that every name is that of the side whose number it has, or
// below it. It forgets nobody and counts nothing.
func answerNames(c net.PacketConn) {
	message := make([]byte, 1500)
	for {
		n, from, err := c.ReadFrom(message)
		if err != nil {
			return
		}
		if reply := nameReply(message[:n]); reply != nil {
			_, _ = c.WriteTo(reply, from)
		}
	}
}

func nameReply(message []byte) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(message)
	if err != nil {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: h.ID, Response: true, RecursionDesired: true, RecursionAvailable: true})
	err = errors.Join(b.StartQuestions(), b.Question(q), b.StartAnswers())
	_, host, below := strings.Cut(q.Name.String(), ".side")
	if below {
		host = "side" + host
	} else {
		host = q.Name.String()
	}
	var side int
	if _, bad := fmt.Sscanf(host, "side%d.test.", &side); bad == nil && q.Type == dnsmessage.TypeA {
		err = errors.Join(err, b.AResource(dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}, dnsmessage.AResource{A: originOf(side).As4()}))
	}
	reply, failed := b.Finish()
	if err != nil || failed != nil {
		return nil
	}
	return reply
}

func accept(ln net.Listener, serve func(net.Conn)) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			serve(c)
		}()
	}
}

// echo gives back what comes.
func echo(c net.Conn) {
	piece := make([]byte, 2048)
	for {
		n, err := c.Read(piece)
		if err != nil {
			return
		}
		if _, err := c.Write(piece[:n]); err != nil {
			return
		}
	}
}

// pour sends until nobody reads.
func pour(c net.Conn) {
	piece := make([]byte, 256<<10)
	for {
		if _, err := c.Write(piece); err != nil {
			return
		}
	}
}

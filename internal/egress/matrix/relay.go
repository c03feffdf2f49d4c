package matrix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/launch"
	"github.com/checkfu/checkfu/internal/egress/relay"
	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/sandbox"
)

// gatewayAddr is where the plane's gateway listens.
var gatewayAddr = netip.AddrPortFrom(lab.PlaneAddr, 8443)

// relaySubject is a running relay with its door.
type relaySubject struct {
	*launch.Process
	door *lab.Door
	log  *capture
	run  RunRecord
}

// relayed runs f beside a relay for a run, with its token and its lease.
func (t *trial) relayed(f func(r *relaySubject, token string) error) error {
	run := newRun()
	token, err := t.plane.lease(run)
	if err != nil {
		return blind(err)
	}
	s, err := t.startRelay(token)
	if err != nil {
		return err
	}
	s.run = run
	err = f(s, token)
	return errors.Join(err, s.end())
}

func (t *trial) startRelay(token string) (*relaySubject, error) {
	door, err := t.lab.RelayDoor()
	if err != nil {
		return nil, err
	}
	config, err := canonical.Encode(relay.Config{
		V: relay.ConfigVersion, Instance: "matrix", Hosts: []string{door.Entry.String()}, Gateway: gatewayAddr.String(),
		TokenDigest: sandbox.Digest(route.TokenDigest(token)), ExpiresAt: sandbox.At(time.Now().Add(time.Hour)),
	})
	if err != nil {
		door.Close()
		return nil, err
	}
	log, out, err := newCapture()
	if err != nil {
		door.Close()
		return nil, err
	}
	s := &relaySubject{door: door, log: log}
	err = t.lab.Relay.Do(func() (err error) {
		s.Process, err = launch.Relay(t.ctx, config, door.Listener, out)
		return err
	})
	out.Close()
	door.Listener.Close()
	if err != nil {
		door.Close()
		log.close()
		return nil, err
	}
	return s, nil
}

func (s *relaySubject) end() error {
	err := s.Stop(context.Background())
	s.door.Close()
	s.log.close()
	return err
}

// call sends a head and a body to the relay from the workload and returns the
// status; 0 is the end of the connection without an answer.
func (t *trial) call(s *relaySubject, head, body string) (int, error) {
	c, err := dial(t.ctx, t.lab, s.door.Entry)
	if err != nil {
		return closed, nil // refused
	}
	defer c.Close()
	status, err := c.ask(head + body)
	if err != nil {
		return status, err
	}
	_, err = c.ends()
	return status, err
}

// message is the head of an ordinary request of a model, and its body.
func message(s *relaySubject, token string) (head, body string) {
	body = modelBody
	return fmt.Sprintf("POST /v1/messages HTTP/1.1\r\nHost: %s\r\nX-Api-Key: %s\r\nAnthropic-Version: 2023-06-01\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", s.door.Entry, token, len(body)), body
}

// models asks as the workload does and says whether the plane was reached, by
// what the plane's side saw, to the upstream that got the key.
func (t *trial) models(s *relaySubject, token string) (reached bool, err error) {
	status, asked := 0, t.plane.asked.Load()
	head, body := message(s, token)
	seen, err := t.watch(func() (err error) { status, err = t.call(s, head, body); return err })
	if err != nil {
		return false, err
	}
	for _, a := range seen.accepts {
		reached = reached || a.In == t.lab.Plane.Name
	}
	if reached != (status == 200) || reached != (len(seen.atPlane()) > 0) || reached != (t.plane.asked.Load() == asked+1) {
		return reached, fmt.Errorf("status %d, accepted at the plane: %v, packets there: %v", status, reached, seen.plane)
	}
	return reached, nil
}

// capture keeps what a process writes to its log.
type capture struct {
	pipe *os.File
	done chan struct{}
	mu   sync.Mutex
	kept bytes.Buffer
}

func newCapture() (*capture, *os.File, error) {
	in, out, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	c := &capture{pipe: in, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		io.Copy(c, io.LimitReader(in, maxJournal))
	}()
	return c, out, nil
}

// Write keeps more.
func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept.Write(p)
}

func (c *capture) contains(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Contains(c.kept.Bytes(), []byte(text))
}

func (c *capture) close() {
	c.pipe.Close()
	<-c.done
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/provider/all"
)

func (a *app) forwardCommand() *cobra.Command {
	quiet := false
	cmd := &cobra.Command{
		Use: "forward SESSION PORT[:LOCAL]...", Short: "Reach a server in the machine of a session from this host",
		Long: `Make a server that listens on PORT in the machine of a session reachable at
127.0.0.1:LOCAL on this host (default the same number; 0 is any free one), until
Ctrl-C. It works whatever the machine's network is, also with none, and gives the
machine no way out: connections are made from here alone.

Standard output holds one line, READY 127.0.0.1:LOCAL, for each port, when all are
taken; standard error one line for each connection that has ended, with its time
and bytes. 32 connections are open at a time for each command, others wait.

A server lives as long as the command that started it: keep that running in
checkfu session exec, and forward beside it. Every user of this host can connect to
LOCAL. What answers is not trusted: a browser gives it the cookies that it holds
for other servers on 127.0.0.1, so open it in a private window.`,
		Example: `  checkfu session exec $id -- npm run dev &
  checkfu forward $id 5173                   # http://127.0.0.1:5173
  checkfu forward $id 80:8080 5432:0`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 || args[0] == "" {
				return argument.Wrong("forward: expected one session, and the ports, as in: checkfu forward ID 8080")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.forward(cmd.Context(), args[0], args[1:], quiet)
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "do not log connections")
	return cmd
}

// maxForwards bounds the ports of one command.
const maxForwards = 16

func (a *app) forward(ctx context.Context, id string, ports []string, quiet bool) (err error) {
	if len(ports) > maxForwards {
		return argument.Unexpected("PORT", "at most "+strconv.Itoa(maxForwards), strconv.Itoa(len(ports)))
	}
	routes := make([]forwardRoute, len(ports))
	for i, text := range ports {
		if routes[i], err = parseForwardRoute(text); err != nil {
			return err
		}
	}
	dir, err := a.usableState()
	if err != nil {
		return err
	}
	s, err := keeper.Open(ctx, dir, id)
	if err != nil {
		return sessionError(id, err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if s.Record.Provider == all.Memory {
		return argument.Unexpected("SESSION", "one with a machine", id+", a simulation")
	}
	var listening []*net.TCPListener
	defer func() {
		for _, l := range listening {
			_ = l.Close()
		}
	}()
	for _, r := range routes {
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: r.local})
		if err != nil {
			return argument.Wrong("PORT: expected a local port that is free, as in %d:0, got %d (%v)", r.port, r.local, err)
		}
		listening = append(listening, l)
	}

	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // the second signal ends the process
	kept, cancel := s.While(ctx)
	defer cancel()
	for _, l := range listening {
		if err := a.print([]byte("READY " + l.Addr().String() + "\n")); err != nil {
			return err
		}
	}
	f := &forwarder{tunnel: s.Tunnel, room: make(chan struct{}, maxForwarded)}
	if !quiet {
		f.log = a.stderr
	}
	var serving sync.WaitGroup
	for i, l := range listening {
		serving.Go(func() { f.serve(kept, l, routes[i].port) })
	}
	serving.Wait()
	if keeper.Dead.Is(context.Cause(kept)) {
		return fmt.Errorf("session %s has no machine any more", id) // ended, or paused
	}
	return nil
}

// forwardRoute is one port of the machine and where it appears here; 0 is anywhere.
type forwardRoute struct{ port, local int }

// parseForwardRoute reads PORT or PORT:LOCAL.
func parseForwardRoute(text string) (forwardRoute, error) {
	far, near, both := strings.Cut(text, ":")
	if !both {
		near = far
	}
	number := func(s string, least int) (int, bool) {
		n, err := strconv.Atoi(s)
		return n, err == nil && n >= least && n <= 65535 && strconv.Itoa(n) == s
	}
	port, ok := number(far, 1)
	local, alsoOK := number(near, 0)
	if !ok || !alsoOK {
		return forwardRoute{}, argument.Unexpected("PORT", "PORT or PORT:LOCAL, each 1 to 65535, as in 8080 or 80:8080", text)
	}
	return forwardRoute{port, local}, nil
}

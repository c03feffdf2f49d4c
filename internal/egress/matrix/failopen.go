package matrix

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"strings"
)

// failsOpen is the mutant whose fault is in no step: somebody stands behind it
// and lets everything pass when it is gone.
const failsOpen = "fails-open-when-killed"

// failingOpen starts a guard with somebody behind it.
func (a *arena) failingOpen(start starter) starter {
	return func(ctx context.Context, config []byte, listener, log *os.File) (*process, error) {
		p, err := start(ctx, config, listener, log)
		if err != nil {
			return nil, err
		}
		behind, err := net.FileListener(listener)
		if err != nil {
			p.stop(ctx)
			return nil, err
		}
		if u, ok := behind.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false)
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			<-p.done
			for {
				conn, err := behind.Accept()
				if err != nil {
					return
				}
				a.letPass(ctx, conn)
				conn.Close()
			}
		}()
		stop := p.stop
		p.stop = func(ctx context.Context) error {
			err := stop(ctx)
			behind.Close()
			<-over
			return err
		}
		return p, nil
	}
}

// letPass connects whoever asks to whatever they ask for, without a rule.
func (a *arena) letPass(ctx context.Context, conn net.Conn) {
	line, err := bufio.NewReader(conn).ReadString('\n')
	if fields := strings.Fields(line); err == nil && len(fields) == 3 {
		if far, err := a.lab.Guard.Dial(ctx, "tcp", public); err == nil {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
			far.Close()
		}
	}
}

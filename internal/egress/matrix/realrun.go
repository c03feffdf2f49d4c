package matrix

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/launch"
	"github.com/checkfu/checkfu/sandbox"
)

// realRun is a Run of a provider that ships, and what is held of it from outside.
type realRun struct {
	RealRun
	out   *bufio.Reader
	guard *watched
	relay *watched
	lease RunRecord
	token string // of its model route
	host  string // that is listed for it, and for nobody else
}

// productRelay starts the relay that ships.
func productRelay(ctx context.Context, config []byte, listener, log *os.File) (*process, error) {
	p, err := launch.Relay(ctx, config, listener, log)
	if err != nil {
		return nil, err
	}
	return &process{pid: p.PID, done: p.Done(), stop: p.Stop, err: p.Err}, nil
}

// runPort is where a real Run may reach its host: what is said there is not TLS.
const runPort = 8443

// beginRun begins a Run in the networks of the lab, whose token is made for it
// alone.
// With planted its guard is one that was given the token.
// Ownership: the caller ends it.
func (b *bench) beginRun(ctx context.Context, p Provider, planted bool) (*realRun, error) {
	r := &realRun{host: strings.ToLower(rand.Text()) + ".test"}
	b.lab.Resolver.Script(r.host, lab.Addresses(lab.PublicAddr))
	start := starter(product)
	if planted {
		start = func(ctx context.Context, config []byte, listener, log *os.File) (*process, error) {
			return altered("plain+"+r.token)(ctx, config, listener, log)
		}
	}
	under, err := p.Begin(ctx, RunRequest{
		Destinations: []sandbox.Destination{{Host: r.host, Port: runPort, Mode: "opaque"}},
		Environment:  b.environment, Resolver: lab.ResolverAddr, Gateway: gatewayAddr.String(),
		Lease: func(lease RunRecord) (token string, err error) {
			r.lease = lease
			r.token, err = b.plane.lease(lease)
			return r.token, err
		},
		Guard: watching(start, b.lab.Guard, &r.guard), Relay: watching(productRelay, b.lab.Relay, &r.relay),
	})
	if err != nil {
		return nil, fmt.Errorf("begin a Run: %w", err)
	}
	r.RealRun, r.out = under, bufio.NewReader(under)
	// The machine has what the topology says, as its workload sees it.
	if err := r.does("lo", tellLinks); err != nil {
		return nil, errors.Join(err, r.end(ctx))
	}
	if r.guard == nil || r.relay == nil {
		return nil, errors.Join(errors.New("the provider started no guard or no relay of the matrix's"), r.end(ctx))
	}
	return r, nil
}

// instance is the id under which the provider knows the machine.
func (r *realRun) instance() sandbox.InstanceID {
	c, err := guard.ParseConfig(r.guard.config)
	if err != nil {
		return "" // an id of nobody
	}
	return sandbox.InstanceID(c.Instance)
}

// ask tells the harness a word and returns its answer. It ends with the Run, which
// has a bound.
func (r *realRun) ask(words ...string) (string, error) {
	line := strings.Join(words, " ")
	if _, err := io.WriteString(r, line+"\n"); err != nil {
		return "", fmt.Errorf("tell the harness %q: %w", line, err)
	}
	answer, err := r.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("the harness on %q: %q: %w", line, answer, err)
	}
	return strings.TrimSuffix(answer, "\n"), nil
}

// does tells the harness something that must come about.
func (r *realRun) does(want string, words ...string) error {
	got, err := r.ask(words...)
	if err == nil && got != want {
		err = fmt.Errorf("%s from inside: expected %q, got %q", strings.Join(words, " "), want, got)
	}
	return err
}

// end lets go of what was held of the Run and ends it, in this order: the provider
// ends whoever has the log of a guard open that should be gone, and a process that
// another case starts at that moment would have our descriptor.
func (r *realRun) end(ctx context.Context) error {
	for _, w := range []*watched{r.guard, r.relay} {
		if w != nil {
			w.log.Close()
		}
	}
	return r.End(ctx)
}

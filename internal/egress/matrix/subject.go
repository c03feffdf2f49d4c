package matrix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/sandbox"
)

// subject is a running guard with its door and its log.
type subject struct {
	*process
	config []byte
	door   *lab.Door
	log    *journal
}

// startSubject opens the door of the lab's topology and starts a guard behind
// it, in its own namespace.
// Errors: of the lab; *launch.StartError for a guard that does not begin.
func startSubject(ctx context.Context, l *lab.Lab, start starter, config []byte) (*subject, error) {
	door, err := l.GuardDoor()
	if err != nil {
		return nil, err
	}
	log, out, err := newJournal()
	if err != nil {
		door.Close()
		return nil, err
	}
	s := &subject{config: config, door: door, log: log}
	err = l.Guard.Do(func() (err error) {
		s.process, err = start(ctx, config, door.Listener, out)
		return err
	})
	// From here on only the guard holds them: when it ends, so do they.
	out.Close()
	door.Listener.Close()
	if err != nil {
		door.Close()
		log.close()
		return nil, err
	}
	return s, nil
}

// end stops the guard, however it is, and holds its log to its chain.
func (s *subject) end() error {
	err := s.stop(context.Background())
	s.door.Close()
	s.log.close()
	return errors.Join(err, s.log.chained())
}

// settings is a guard's configuration, as the matrix writes it.
func (b *bench) settings() guard.Config {
	return guard.Config{
		V: guard.ConfigVersion, Instance: "matrix", PolicyRevision: sandbox.Digest(canonical.Digest([]byte("matrix"))),
		Resolver: lab.ResolverAddr.String(), Allow: b.allow, ReservedHosts: []string{planeHost},
		InfraAddrs: []string{lab.PlaneAddr.String(), lab.RelayAddr.String(), infraAddr.String()},
		ExpiresAt:  sandbox.At(time.Now().Add(24 * time.Hour)),
	}
}

// own is a guard with a configuration of its own, for one case.
// Ownership: the case ends it.
func (t *trial) own(change func(*guard.Config)) (*trial, error) {
	c := t.settings()
	change(&c)
	data, err := canonical.Encode(c)
	if err != nil {
		return nil, fmt.Errorf("write a configuration: %w", err)
	}
	return t.ownBytes(data)
}

// nothing changes no setting.
func nothing(*guard.Config) {}

// with is a guard with a further fault, laid on what it has.
func (t *trial) with(fault string) *trial {
	b := *t.bench
	b.start = altered(t.base + "+" + fault)
	return &trial{bench: &b, ctx: t.ctx}
}

func (t *trial) ownBytes(config []byte) (*trial, error) {
	s, err := startSubject(t.ctx, t.lab, t.start, config)
	if err != nil {
		return nil, err
	}
	if t.began != nil {
		*t.began = append(*t.began, s.process)
	}
	return &trial{bench: t.bench, ctx: t.ctx, guard: s}, nil
}

// atRest is how many sockets a guard has that serves nobody: its listener, and one
// that leads nowhere, kept for the moment when there is no other descriptor.
const atRest = 2

// settled waits until the guard has no other sockets left. A refused client has a
// second to read why before its connection is closed.
func (s *subject) settled(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.pid))
		sockets := 0
		for _, path := range paths {
			if target, err := os.Readlink(path); err == nil && strings.HasPrefix(target, "socket:") {
				sockets++
			}
		}
		if sockets == atRest {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("sockets of the guard at rest: expected %d, got %d", atRest, sockets)
		}
	}
}

package matrix

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"sync"

	"github.com/checkfu/checkfu/internal/egress/confine"
	"github.com/checkfu/checkfu/internal/egress/daemon"
	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/policy"
)

// variantName is the name under which this binary is a guard with a fault.
const variantName = "checkfu-egress-variant"

// variant is a change of the request path. What is changed is what was there, so
// that several can be laid on each other.
type variant func(c guard.Config, s *guard.Steps)

// variants are the faults, by name. Those that begin with "fault" are no wrong
// guards but blows from outside that a right one must withstand: the white box
// of the cases P88 and P90.
var variants = map[string]variant{
	"no-classifier": func(_ guard.Config, s *guard.Steps) {
		s.Admit = func(string, []netip.Addr) error { return nil }
		s.Socket = func(string, netip.AddrPort, netip.AddrPort) error { return nil }
		s.Peer = func(string, netip.AddrPort, netip.AddrPort, netip.AddrPort) error { return nil }
	},
	"check-then-resolve-again": func(_ guard.Config, s *guard.Steps) {
		s.Pin = func(ctx context.Context, host string, _ []netip.Addr) ([]netip.Addr, error) {
			return s.Resolve(ctx, host)
		}
		s.Socket = func(string, netip.AddrPort, netip.AddrPort) error { return nil }
		s.Peer = func(string, netip.AddrPort, netip.AddrPort, netip.AddrPort) error { return nil }
	},
	"first-answer-only": func(_ guard.Config, s *guard.Steps) {
		admit := s.Admit
		s.Admit = func(host string, answers []netip.Addr) error {
			return admit(host, answers[:min(1, len(answers))])
		}
	},
	"first-public-answer": func(_ guard.Config, s *guard.Steps) {
		s.Admit = func(string, []netip.Addr) error { return nil }
		s.Pin = func(_ context.Context, _ string, answers []netip.Addr) ([]netip.Addr, error) {
			var out []netip.Addr
			for _, a := range answers {
				if policy.Public(a) {
					out = append(out, a)
				}
			}
			return out, nil
		}
	},
	"private-blocks-only": func(_ guard.Config, s *guard.Steps) {
		s.Admit = func(_ string, answers []netip.Addr) error {
			for _, a := range answers {
				if a.IsPrivate() || !a.IsGlobalUnicast() {
					return &policy.Refusal{Reason: policy.ReasonAnswerNotPublic, Status: policy.StatusPolicy}
				}
			}
			return nil
		}
		s.Socket = func(string, netip.AddrPort, netip.AddrPort) error { return nil }
		s.Peer = func(string, netip.AddrPort, netip.AddrPort, netip.AddrPort) error { return nil }
	},
	"no-infrastructure": func(_ guard.Config, s *guard.Steps) {
		s.Admit = func(_ string, answers []netip.Addr) error { return policy.Infrastructure{}.Answers(answers) }
		s.Socket = func(string, netip.AddrPort, netip.AddrPort) error { return nil }
		s.Peer = func(string, netip.AddrPort, netip.AddrPort, netip.AddrPort) error { return nil }
	},
	"suffix-match": func(_ guard.Config, s *guard.Steps) {
		match := s.Match
		s.Match = func(t policy.Target) (string, error) {
			if strings.HasSuffix(t.Host, allowed) {
				t.Host = allowed
			}
			return match(t)
		}
	},
	"prefix-match": func(_ guard.Config, s *guard.Steps) {
		match := s.Match
		s.Match = func(t policy.Target) (string, error) {
			if strings.HasPrefix(t.Host, allowed) {
				t.Host = allowed
			}
			return match(t)
		}
	},
	"port-ignored": func(_ guard.Config, s *guard.Steps) {
		match := s.Match
		s.Match = func(t policy.Target) (string, error) { t.Port = 443; return match(t) }
	},
	"port-modulo": func(_ guard.Config, s *guard.Steps) {
		parse := s.Parse
		s.Parse = func(raw string) (policy.Target, error) { return parse(strings.ReplaceAll(raw, ":65979", ":443")) }
	},
	"unicode-mapped": func(_ guard.Config, s *guard.Steps) {
		parse := s.Parse
		s.Parse = func(raw string) (policy.Target, error) {
			return parse(strings.NewReplacer("\u3002", ".", "\uff41", "a", "\u00ad", "").Replace(raw))
		}
	},
	"dot-stripped": func(_ guard.Config, s *guard.Steps) {
		parse := s.Parse
		s.Parse = func(raw string) (policy.Target, error) { return parse(strings.ReplaceAll(raw, ".:", ":")) }
	},
	"case-kept": func(_ guard.Config, s *guard.Steps) {
		match := s.Match
		s.Match = func(t policy.Target) (string, error) {
			t.Host, _, _ = strings.Cut(t.Raw, ":")
			return match(t)
		}
	},
	"resolve-before-match": func(_ guard.Config, s *guard.Steps) {
		match := s.Match
		s.Match = func(t policy.Target) (string, error) {
			s.Resolve(context.Background(), t.Host)
			return match(t)
		}
	},
	"resolver-fails-open": func(_ guard.Config, s *guard.Steps) {
		resolve := s.Resolve
		s.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			if a, err := resolve(ctx, host); err == nil {
				return a, nil
			}
			return []netip.Addr{lab.PublicAddr}, nil
		}
	},
	"answers-cached": func(_ guard.Config, s *guard.Steps) {
		resolve, known := s.Resolve, newMemory[[]netip.Addr]()
		s.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			if a, ok := known.of(host); ok {
				return a, nil
			}
			a, err := resolve(ctx, host)
			if err == nil {
				known.keep(host, a)
			}
			return a, err
		}
	},
	"checked-once": func(_ guard.Config, s *guard.Steps) {
		admit, known := s.Admit, newMemory[string]()
		s.Admit = func(host string, answers []netip.Addr) error {
			if _, before := known.of("judged " + host); before {
				return nil
			}
			err := admit(host, answers)
			if err == nil {
				known.keep("judged "+host, "")
			}
			return err
		}
		s.Socket = func(string, netip.AddrPort, netip.AddrPort) error { return nil }
		s.Peer = func(string, netip.AddrPort, netip.AddrPort, netip.AddrPort) error { return nil }
	},
	"empty-list-allows": func(c guard.Config, s *guard.Steps) {
		if match := s.Match; len(c.Allow) == 0 {
			s.Match = func(t policy.Target) (string, error) {
				if mode, err := match(t); err == nil {
					return mode, nil
				}
				return policy.ModeTLS, nil
			}
		}
	},
	"sni-ignored": func(_ guard.Config, s *guard.Steps) {
		s.Hello = func(string, guard.Hello) error { return nil }
	},
	"missing-sni-passes": func(_ guard.Config, s *guard.Steps) {
		hello := s.Hello
		s.Hello = func(host string, h guard.Hello) error {
			if h.ServerName == "" {
				return nil
			}
			return hello(host, h)
		}
	},
	"ech-ignored": func(_ guard.Config, s *guard.Steps) {
		hello := s.Hello
		s.Hello = func(host string, h guard.Hello) error { h.ECH = false; return hello(host, h) }
	},
	"socket-unchecked": func(_ guard.Config, s *guard.Steps) {
		s.Socket = func(string, netip.AddrPort, netip.AddrPort) error { return nil }
	},
	"peer-unchecked": func(_ guard.Config, s *guard.Steps) {
		s.Peer = func(string, netip.AddrPort, netip.AddrPort, netip.AddrPort) error { return nil }
	},
	"fault-pin": func(_ guard.Config, s *guard.Steps) {
		s.Pin = func(context.Context, string, []netip.Addr) ([]netip.Addr, error) { return []netip.Addr{private}, nil }
	},
	"fault-peer": func(_ guard.Config, s *guard.Steps) {
		peer := s.Peer
		s.Peer = func(host string, chosen, local, _ netip.AddrPort) error {
			return peer(host, chosen, local, netip.AddrPortFrom(private, 443))
		}
	},
	"plain":        func(guard.Config, *guard.Steps) {},
	fewDescriptors: func(guard.Config, *guard.Steps) {}, // see variantMain
}

// fewDescriptors is a guard that may have fewFiles descriptors at once: a right
// one is given as many as its tunnels need, and never meets the limit.
const (
	fewDescriptors = "fault-few-descriptors"
	fewFiles       = 40
)

// memory is what a fault remembers from request to request.
type memory[V any] struct {
	mu   sync.Mutex
	kept map[string]V
}

func newMemory[V any]() *memory[V] { return &memory[V]{kept: map[string]V{}} }

func (m *memory[V]) of(key string) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.kept[key]
	return v, ok
}

func (m *memory[V]) keep(key string, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept[key] = v
}

// Main is a whole run of this binary where it was started by the matrix: as a
// guard with a fault, as a program of the workload, or as the harness of a real
// Run. It is false where it was started by anybody else. A command, and a test, that calls Run calls it first.
func Main() (code int, was bool) {
	switch os.Args[0] {
	case variantName:
		return variantMain(os.Args[1], os.Args[2:]), true
	case hostileName:
		return hostileMain(os.Args[1:]), true
	case HarnessPath:
		return harnessMain(os.Args[1:]), true
	}
	return 0, false
}

func variantMain(names string, args []string) int {
	return daemon.Main(daemon.Program{Name: variantName, Summary: "A guard with a fault.", Prepare: func(in daemon.Inputs) (daemon.Service, error) {
		config, err := guard.ParseConfig(in.Config)
		if err != nil {
			return daemon.Service{}, err
		}
		g, err := guard.New(guard.Options{Config: config, Log: in.Log, Notes: in.Notes, Alter: func(s *guard.Steps) {
			for name := range strings.SplitSeq(names, "+") {
				if v := variants[name]; v != nil {
					v(config, s)
				}
			}
		}})
		if err != nil {
			return daemon.Service{}, err
		}
		// The ports are those of the sinks: a fault must show, and not be hidden
		// by what the kernel holds besides.
		files := 16384
		if strings.Contains(names, fewDescriptors) {
			files = fewFiles
		}
		return daemon.Service{Needs: confine.Needs{Files: files, Ports: append(lab.SinkPorts(), lab.ResolverAddr.Port())}, Serve: g.Serve}, nil
	}}, args)
}

package sandboxtest

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/checkfu/checkfu/sandbox"
)

// networkFaults are wrong in what the workload may reach.
func networkFaults() []Saboteur {
	return []Saboteur{
		{ID: "G1", Fault: "a none profile is given an open network", Kills: "none-egress/listed-denied",
			Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
				return disguised(p, env, func(q *sandbox.ProvisionRequest) bool {
					none := q.Profile.NetworkPolicy.Mode == sandbox.NetworkNone
					if none {
						q.Profile.NetworkPolicy.Mode = sandbox.NetworkUnrestricted
					}
					return none
				})
			}},
		{ID: "G5", Fault: "advisory_filter is claimed and the destination set ignored", Kills: "allowlist-egress/unlisted-denied",
			Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
				o := leaky(p, func() {}, func(w wall, _ string, _ int64) bool { return w.policy.Mode == sandbox.NetworkAllowlist })
				o.CapabilitiesFunc = func(ctx context.Context) (sandbox.Capabilities, error) {
					env.Fire() // the claim is the fault
					return p.Capabilities(ctx)
				}
				return o
			}},
		leak("G6", "a listed host grants its subdomains", "allowlist-egress/subdomain", func(w wall, host string, port int64) bool {
			return w.lists(func(d sandbox.Destination) bool { return strings.HasSuffix(host, "."+d.Host) && port == d.Port })
		}),
		leak("G7", "a host that ends like a listed one is let through", "allowlist-egress/suffix", func(w wall, host string, port int64) bool {
			return w.lists(func(d sandbox.Destination) bool { return strings.HasSuffix(host, d.Host) && port == d.Port })
		}),
		leak("G8", "the port is ignored", "allowlist-egress/other-port", func(w wall, host string, _ int64) bool {
			return w.lists(func(d sandbox.Destination) bool { return host == d.Host })
		}),
		leak("G18", "an empty list allows everything", "allowlist-egress/empty-list", func(w wall, _ string, _ int64) bool {
			return w.policy.Mode == sandbox.NetworkAllowlist && len(w.policy.Destinations) == 0
		}),
		leak("G19", "the wall comes up after the first command", "none-egress/listed-denied", func(w wall, _ string, _ int64) bool {
			return w.commands == 1
		}),
		leak("G20", "a machine out of the pool drops its policy", "allowlist-egress", func(w wall, _ string, _ int64) bool {
			return w.policy.Mode == sandbox.NetworkAllowlist && w.number > 1
		}),
	}
}

// wall is what stands between one machine and the network.
type wall struct {
	policy   sandbox.NetworkPolicy
	number   int // of the machines with this mode, from 1
	commands int // that were run, this one included
}

// lists reports whether an allowlist has a destination for which match holds.
func (w wall) lists(match func(sandbox.Destination) bool) bool {
	for _, d := range w.policy.Destinations {
		if match(d) {
			return true
		}
	}
	return false
}

// admits is the right rule: exactly what is listed.
func (w wall) admits(host string, port int64) bool {
	return w.policy.Mode == sandbox.NetworkUnrestricted ||
		w.lists(func(d sandbox.Destination) bool { return d.Host == host && d.Port == port })
}

func leak(id, fault, kills string, rule func(w wall, host string, port int64) bool) Saboteur {
	return Saboteur{ID: id, Fault: fault, Kills: kills, Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
		return leaky(p, env.Fire, rule)
	}}
}

// leaky lets through, beside what it should, whatever rule admits. It knows
// the one program of simulated machines, connect HOST PORT, and answers for it.
func leaky(p sandbox.Provider, fire func(), rule func(w wall, host string, port int64) bool) Override {
	var mu sync.Mutex
	walls := map[sandbox.InstanceID]*wall{}
	numbers := map[sandbox.NetworkMode]int{}
	return Override{
		Provider: p,
		ProvisionFunc: func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
			h, err := p.Provision(ctx, q)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				mode := q.Profile.NetworkPolicy.Mode
				numbers[mode]++
				walls[h.Value.InstanceID] = &wall{policy: q.Profile.NetworkPolicy, number: numbers[mode]}
			}
			return h, err
		},
		ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
			mu.Lock()
			var w wall
			if known := walls[id]; known != nil {
				known.commands++
				w = *known
			}
			mu.Unlock()
			if said, host, port := connects(c); said != "" && w.policy.Mode != "" && rule(w, host, port) && !w.admits(host, port) {
				fire()
				last := len(c.Arguments) - 1
				c.Arguments = append(slices.Clone(c.Arguments[:last]), strings.ReplaceAll(c.Arguments[last], said, "echo connected"))
			}
			return p.Execute(ctx, id, c)
		},
	}
}

var connection = regexp.MustCompile(`connect ([a-z0-9.-]+) ([0-9]+)`)

// connects finds the attempt in a command: its words, "" if there is none.
func connects(c sandbox.Command) (said, host string, port int64) {
	if len(c.Arguments) == 0 {
		return "", "", 0
	}
	found := connection.FindStringSubmatch(c.Arguments[len(c.Arguments)-1])
	if found == nil {
		return "", "", 0
	}
	port, _ = strconv.ParseInt(found[2], 10, 64)
	return found[0], found[1], port
}

// pendingNetwork wait for the egress guard and its matrix: a machine that is
// data has no resolver, no second protocol, no redirect and no guard.
func pendingNetwork() []Pending {
	const (
		packet   = "a simulated machine has one kind of connection; the egress matrix sends real packets"
		resolver = "needs a resolver of the suite's own, which comes with the egress matrix"
		guard    = "needs a guard process that can be edited or killed, which comes with the egress matrix"
		plane    = "needs a plane route beside the workload's, which comes with the model relay"
		receipt  = "receipts do not exist before the egress matrix signs one"
	)
	return []Pending{
		{"G2", "none leaks DNS", packet},
		{"G3", "none leaks IPv6", packet},
		{"G4", "none leaks UDP and ICMP", packet},
		{"G9", "addresses are classified at policy time only", resolver},
		{"G10", "only the first answer is classified", resolver},
		{"G11", "the classifier is deleted and a dead upstream answers 403", guard},
		{"G12", "::ffff:127.0.0.1 is admitted", resolver},
		{"G13", "an address in decimal or octal is admitted", guard},
		{"G14", "169.254.169.254 is reached", packet},
		{"G15", "a redirect is not checked again", guard},
		{"G16", "there is a direct route when the proxy variables are ignored", guard},
		{"G17", "the guard's death fails open", guard},
		{"G21", "the workload's edge forwards a plane token", plane},
		{"G22", "the plane route is reached by the workload's authority", plane},
		{"G23", "a receipt with four facts counts", receipt},
		{"G24", "a receipt of another revision counts", receipt},
		{"G25", "a receipt of an unlisted key or a wrong domain counts", receipt},
	}
}

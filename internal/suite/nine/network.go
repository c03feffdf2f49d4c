package nine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// noneEgress connects from a machine that may reach nothing. The first command
// already tries: a wall that comes up later is none.
func noneEgress(t *probe.T) {
	l := live(t)
	m := t.Machine(probe.Shape{Network: &sandbox.NetworkPolicy{Mode: sandbox.NetworkNone}})
	l.denied(m, "listed-denied", l.Listed())
	l.denied(m, "unlisted-denied", l.Unlisted())
}

// allowlistEgress tries one destination that answers under policies that name
// it, name something like it, or name nothing. So every refusal is of a
// destination that is there.
func allowlistEgress(t *probe.T) {
	l := live(t)
	listed := l.Listed()
	if err := listed.Validate(); err != nil {
		t.Unjudged("lab", "an allowlist cannot name the lab's destination: "+err.Error()+
			"; give the run two that have names and answer, here and to the provider's guard (--listed and --unlisted)")
	}
	machine := func(destinations ...sandbox.Destination) *probe.Machine {
		return t.Machine(probe.Shape{Network: &sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: append([]sandbox.Destination{}, destinations...)}})
	}
	m := machine(listed)
	l.denied(m, "unlisted-denied", l.Unlisted())
	if code, got := l.connect(m.ID, listed); !t.Served("listed-reached", code == "0", "a connection to the listed destination", got) {
		t.Stop() // whoever reaches nothing at all shows nothing by being refused
	}
	l.denied(machine(), "empty-list", listed)
	if listed.Port == 65535 {
		t.Unjudged("lab", "there is no port above the lab's")
	}
	l.denied(machine(sandbox.Destination{Host: listed.Host, Port: listed.Port + 1}), "other-port", listed)
	// What is listed is the end of the name, with and without a whole label: the
	// destination is then its subdomain, or merely ends alike.
	_, parent, _ := strings.Cut(listed.Host, ".")
	for _, near := range []struct{ check, host string }{{"subdomain", parent}, {"suffix", listed.Host[1:]}} {
		d := sandbox.Destination{Host: near.host, Port: listed.Port}
		if d.Validate() != nil || near.host == parent && near.check == "suffix" {
			t.Observe("%s was not tried: the lab's name %s has no such part", near.check, listed.Host)
			continue
		}
		l.denied(machine(d), near.check, listed)
	}
}

// lab is the network of the target with its live controls made.
type lab struct {
	probe.Network
	t *probe.T
}

// live makes the controls: both destinations answer from outside, and, where a
// machine may have an open network, the script reaches them from inside.
func live(t *probe.T) lab {
	n := t.Target().Network
	if n == nil {
		t.Unjudged("lab", "there is no destination that answers: give the run a network to try")
	}
	l := lab{n, t}
	for _, d := range []sandbox.Destination{n.Listed(), n.Unlisted()} {
		err := n.Alive(t.Context(), d)
		t.Control("alive", err == nil, err)
	}
	if slices.Contains(t.Envelope().NetworkModes, sandbox.NetworkUnrestricted) {
		open := t.Machine(probe.Shape{Network: &sandbox.NetworkPolicy{Mode: sandbox.NetworkUnrestricted}})
		for _, d := range []sandbox.Destination{n.Listed(), n.Unlisted()} {
			code, got := l.connect(open.ID, d)
			if h, ok := n.(interface{ OnHost() bool }); ok && h.OnHost() && code != "0" {
				t.Observe("%s on this host is out of reach of an open machine, which is no control", address(d))
				continue
			}
			t.Control("reached-when-open", code == "0", got)
		}
	}
	return l
}

// denied holds that m does not reach d, by what the machine says and by what
// the other end counted.
func (l lab) denied(m *probe.Machine, check string, d sandbox.Destination) {
	before := l.Accepted(d)
	code, _ := l.connect(m.ID, d)
	l.t.Served(check, code != "0", "no connection to "+address(d), "a connection")
	if before >= 0 {
		arrived := l.Accepted(d) - before
		l.t.Served(check, arrived == 0, "no connection counted at "+address(d), fmt.Sprintf("%d connections", arrived))
	}
}

// connect runs the lab's script in a machine, beside something that only a
// machine can answer, and returns the script's status. It makes sure that there
// was something to connect with: a missing program fails as surely as a wall.
func (l lab) connect(id sandbox.InstanceID, d sandbox.Destination) (code, said string) {
	script, answer := puzzle(l.t)
	other := decimal(int64(between(l.t, 3, 90)))
	got := sh(l.t, id, "sh -c "+word(l.Connect(d))+" > /dev/null 2>&1; echo $?; sh -c 'exit "+other+"'; echo $?; "+script)
	code, rest, _ := strings.Cut(string(got.Stdout), "\n")
	must(l.t, "works", probe.Code(got) == 0 && rest == other+"\n"+answer+"\n", "a status, "+other+" and the line "+answer, says(got))
	const nothing, cannot, missing = "99", "126", "127" // the lab's own word, and a shell's two
	l.t.Control("tried", code != nothing && code != cannot && code != missing, "the machine has no program to connect with: "+says(got))
	return code, says(got)
}

func address(d sandbox.Destination) string { return d.Host + ":" + decimal(d.Port) }

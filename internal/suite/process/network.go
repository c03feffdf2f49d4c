package process

import (
	"fmt"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// networkProbe holds the wall around a live process, which another path of a
// provider may have started than the one that runs commands.
func networkProbe() probe.Probe {
	p := holds("network", "38", "a live process reaches nothing from a none-network machine", network)
	p.Requires = append(p.Requires, report.NetworkNone)
	return p
}

func network(t *probe.T) {
	lab := t.Target().Network
	if lab == nil {
		t.Unjudged("lab", "there is no destination that answers: give the run a network to try")
	}
	for _, d := range []sandbox.Destination{lab.Listed(), lab.Unlisted()} {
		err := lab.Alive(t.Context(), d)
		t.Control("alive", err == nil, err)
		before := lab.Accepted(d)
		none := &sandbox.NetworkPolicy{Mode: sandbox.NetworkNone}
		l := start(t, t.Machine(probe.Shape{Network: none}), program(`sh -c "$1" >/dev/null 2>&1; echo $? "$2"`, lab.Connect(d), t.Nonce()))
		said, err := l.line()
		t.Check("says", err == nil, "a line", came(said, err))
		var status int
		var mark string
		_, err = fmt.Sscan(said, &status, &mark)
		t.Check("works", err == nil && len(mark) == 16, "a status and a nonce", said)
		// 99 is the lab's own word for nothing to connect with, the others a shell's.
		t.Control("tried", status != 99 && status != 126 && status != 127, "the machine has no program to connect with: "+said)
		t.Served("denied", status != 0, "no connection to "+d.Host, "a connection")
		if before >= 0 {
			t.Served("denied", lab.Accepted(d) == before, "no connection counted", "a connection")
		}
	}
}

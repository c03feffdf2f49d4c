package runc

import (
	"testing"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

func TestFirst(t *testing.T) {
	h := newHost(t)
	m := h.start(t)
	out, exit := finish(t, m, nil, "sh", "-c", "id; ps; cat /proc/self/cgroup; exit 7")
	t.Log(out, exit)
	out, exit = finish(t, m, nil, "hostile", "state")
	t.Log(out, exit)
	out, exit = finish(t, m, nil, "hostile", "refused")
	t.Log(out, exit)
	out, exit = finish(t, m, nil, "hostile", "touch-init")
	t.Log(out, exit)
	o, err := m.Observe(t.Context())
	t.Logf("%+v %v", o, err)
	_ = machine.Exit{}
}
func ownMachine(string) {}

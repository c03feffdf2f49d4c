package wire

import (
	"bytes"
	"io"
	"sync/atomic"

	"github.com/checkfu/checkfu/internal/faultproxy"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// cutsPast is more than the head of a response and the open frame take, and
// cutsStep how much more comes of each connection.
const (
	cuts     = 8
	cutsPast = 4096
	cutsStep = 4096
)

// brokenOff follows a process through a proxy that cuts the stream again and
// again: in the head and the open frame every second time, and then somewhere in
// what is written, in heads of frames as well, which are small.
func brokenOff(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	script, want := counted(t, 8000)
	at := t.Bytes(2 * cuts)
	var streams atomic.Int64
	c, proxy := link(t, o.lease, func(e faultproxy.Exchange) faultproxy.Fault {
		if e.Path != t.Target().Wire.Path+wire.ProcessStream.Path() {
			return faultproxy.Fault{}
		}
		n := int(streams.Add(1)) - 1
		switch {
		case n >= cuts:
			return faultproxy.Fault{}
		case n%2 == 0:
			return faultproxy.Fault{Kind: faultproxy.CutResponse, After: int64(at[2*n]) * 2}
		}
		return faultproxy.Fault{Kind: faultproxy.CutResponse, After: cutsPast + int64(at[2*n])*cutsStep/256 + int64(at[2*n+1])/16}
	})
	opener := c.Optional().OpenProcess
	if opener == nil {
		t.Fatal("member", "open_process", "none")
	}
	p, err := opener.OpenProcess(t.Context(), o.id, string(wire.NewProcessID()), process(script+"; read -r line; exit 7"))
	t.Need("open", err)
	got := make([]byte, len(want))
	n, err := probe.Bounded(t, func() (int, error) { return io.ReadFull(p.Output(), got) })
	if !t.Check("same", err == nil && bytes.Equal(got[:n], want), "what was written", err) {
		return
	}
	t.Control("cut", proxy.Faults()[faultproxy.CutResponse] >= cuts/2, "the connections were not cut")
	_, err = probe.Bounded(t, func() (int, error) { return p.Input().Write([]byte("\n")) })
	t.Need("input", err)
	exit, err := probe.Bounded(t, func() (sandbox.Exit, error) { return p.Wait(t.Context()) })
	t.Check("exit", err == nil && exited(exit, 7), "code 7", exitText(exit))
	rest, err := probe.Bounded(t, func() ([]byte, error) { return io.ReadAll(p.Output()) })
	t.Check("end", err == nil && len(rest) == 0, "the end of file", err)
}

package matrix

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/launch"
)

// TestNoBeginning: a guard refuses a configuration by ending with the code for that
// and one line. Whatever else keeps one from beginning has refused nothing, and a
// fault that does so was not caught.
func TestNoBeginning(t *testing.T) {
	ended := func(script string) error { return exec.Command("sh", "-c", script).Run() }
	const program = launch.GuardProgram
	for name, c := range map[string]struct {
		err     error
		refused bool
	}{
		"a refusal":        {&launch.StartError{Program: program, Err: ended("exit 2"), Said: string(program) + ": allow: expected a list\n"}, true},
		"joined":           {&launch.StartError{Program: program, Err: errors.Join(errors.New("EOF"), ended("exit 2")), Said: string(program) + ": no"}, true},
		"a crash":          {&launch.StartError{Program: program, Err: ended("exit 2"), Said: "panic: nil\n\ngoroutine 1 [running]:\n"}, false},
		"a crash, later":   {&launch.StartError{Program: program, Err: ended("exit 2"), Said: string(program) + ": note\npanic: nil\n"}, false},
		"nothing said":     {&launch.StartError{Program: program, Err: ended("exit 2")}, false},
		"another code":     {&launch.StartError{Program: program, Err: ended("exit 1"), Said: string(program) + ": no"}, false},
		"killed":           {&launch.StartError{Program: program, Err: ended("kill -9 $$"), Said: string(program) + ": no"}, false},
		"too slow":         {&launch.StartError{Program: program, Err: os.ErrDeadlineExceeded}, false},
		"no door":          {&lab.Error{Step: "open the door", Err: os.ErrExist}, false},
		"not built":        {&launch.MissingError{Program: program}, false},
		"something untold": {errors.New("x"), false},
	} {
		if err := noBeginning(c.err); (err == nil) != c.refused {
			t.Errorf("%s: expected a refusal %v, got %v", name, c.refused, err)
		}
	}
	start := &launch.StartError{Program: program, Err: ended("kill -9 $$")}
	at := &trial{bench: &bench{}, ctx: t.Context()}
	for err, want := range map[error]report.Status{
		fmt.Errorf("a guard: %w", start): report.Error, blind(errors.New("x")): report.Error, errors.New("x"): report.Fail, skipError{"x"}: report.Skip,
	} {
		if got, _, _ := at.judge(Case{run: func(*trial) error { return err }}); got != want {
			t.Errorf("%v: expected %s, got %s", err, want, got)
		}
	}
}

// TestTopologyDigest: the same lab is the same digest, and one link more is another.
func TestTopologyDigest(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	digests := map[string]bool{}
	for i := range 3 {
		l, err := lab.Open(lab.SocketFile)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if i == 2 {
			attributes := netlink.NewLinkAttrs()
			attributes.Name = "extra"
			if err := l.Workload.Do(func() error { return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: "other"}) }); err != nil {
				t.Fatal(err)
			}
		}
		digest, err := topologyDigest(l)
		if err != nil || !strings.HasPrefix(digest, "sha256:") {
			t.Fatal(digest, err)
		}
		digests[digest] = true
		if want := map[int]int{0: 1, 1: 1, 2: 2}[i]; len(digests) != want {
			t.Errorf("lab %d: expected %d digests, got %v", i, want, digests)
		}
	}
}

// TestFilters: whoever asks for a part is told that it was one, but for a topology,
// of which a receipt is.
func TestFilters(t *testing.T) {
	for _, c := range []struct {
		options Options
		want    string
	}{
		{Options{}, "[]"},
		{Options{Topologies: []lab.Topology{lab.Veth}}, "[]"},
		{Options{Configurations: Configurations()}, "[]"},
		{Options{Cases: []string{"E"}}, "[E]"},
		{Options{Configurations: []Configuration{GuardOnly, Both}}, "[guard both]"},
	} {
		if got := fmt.Sprint(c.options.whole().filters()); got != c.want {
			t.Errorf("%+v: expected %s, got %s", c.options, c.want, got)
		}
	}
}

package memory

import (
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// Any text at all gives a valid settlement or a typed refusal, in bounded
// time and output, twice the same way, and leaves the machine usable.
func FuzzExecute(f *testing.F) {
	for _, s := range []string{
		"echo a; cat /no", "yes | head -c 5 | tee /tmp/x", "while true; do x=$x$x.; done", "printf '%s%d\\101%%' a 1", "ln -s /tmp/l /tmp/l; cat /tmp/l/x",
		"kill -9 $$", "mkdir -p /tmp/a/b; mv /tmp/a /tmp/a/b/c; rm -rf /tmp/a", "read x; echo $x; exec sh -c 'exit 3'", "trap '' TERM; kill $$", "sleep 9 | sleep 1e300",
		"seq 9223372036854775806 9223372036854775807", "chmod 000 /tmp; cd /tmp; ls; rm -r /workspace/rw", "sh <<<", "[ 1 -lt 2 ] && test ! -e /x || [ a",
		"head -n 99999999999 /dev/null | wc -l", "echo $0$1$@$#$?$$ \"$@\"", "mv /workspace/rw /tmp/x; mkfifo /tmp/f; cat </tmp/f",
	} {
		f.Add(s, "line\n")
	}
	f.Fuzz(func(t *testing.T, script, stdin string) {
		var first sandbox.Settlement
		for round := range 2 {
			p := New(Options{Clock: NewManual(start)})
			h, err := p.Provision(t.Context(), with(func(r *sandbox.ProvisionRequest) { r.Profile.ResourceLimits.DiskBytes = 1 << 20 }))
			if err == nil {
				_, err = p.Activate(t.Context(), h.Value.InstanceID)
			}
			if err != nil {
				t.Fatal(err)
			}
			id := h.Value.InstanceID
			c := shellCommand("")
			c.Arguments = nil
			c.Executable, c.Stdin, c.TimeoutSeconds, c.OutputLimitBytes = "sh", []byte(stdin), 1, 1<<16
			if len(script) <= sandbox.MaxArgumentBytes {
				c.Arguments = []string{"-c", script}
			}
			began := time.Now()
			s, err := p.Execute(t.Context(), id, c)
			if took := time.Since(began); took > 20*time.Second {
				t.Fatalf("%q took %s", script, took)
			}
			if e, ok := err.(*sandbox.Error); err != nil && (!ok || e.Kind != sandbox.OutputLimitExceeded && e.Reason != sandbox.ReasonInvalidRequest) {
				t.Fatalf("%q: %v", script, err)
			} else if err == nil {
				if err := s.Validate(c.OutputLimitBytes); err != nil {
					t.Fatalf("%q: %v", script, err)
				}
			}
			tr := p.instances[id].m.tree
			if tr.used < 0 || tr.used > tr.limit {
				t.Fatalf("%q: %d of %d bytes used", script, tr.used, tr.limit)
			}
			if _, err := p.Execute(t.Context(), id, shellCommand("true")); err != nil {
				t.Fatal(err)
			}
			if err := p.Destroy(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			if round == 0 {
				first = s
			} else if show(s) != show(first) {
				t.Fatalf("%q: %s, then %s", script, show(first), show(s))
			}
		}
	})
}

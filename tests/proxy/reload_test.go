package proxy

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
)

// A proxy that is reloaded while calls pass, which ends connections under them
// with or without a goodbye, has each of them carried out once.
func TestReload(t *testing.T) {
	t.Parallel()
	const callers, calls = 4, 50
	each(t, func(t *testing.T, p program) {
		x := begin(t, p, "settings", serve(t).address, nil)
		c := x.connect(t, nil)
		id := active(t, c)
		run := func(script string) sandbox.Settlement {
			q := process(script)
			s, err := c.Execute(t.Context(), id, sandbox.Command{
				Executable: q.Executable, Arguments: q.Arguments, WorkingDirectory: q.WorkingDirectory, Environment: q.Environment,
				TimeoutSeconds: 30, OutputLimitBytes: 1 << 20,
			})
			if err != nil || s.Exit.ExitCode == nil || *s.Exit.ExitCode != 0 {
				t.Errorf("%s: %+v %v", script, s.Exit, err)
			}
			return s
		}
		var done atomic.Int64
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range calls {
					run("echo ran >> " + mount + "/log")
					if n := done.Add(1); n%60 == 30 { // with three others under way
						p.reload(t, x)
					}
				}
			})
		}
		all.Wait()
		if out := run("cat " + mount + "/log").Stdout; strings.Count(string(out), "ran\n") != callers*calls {
			t.Errorf("%d of %d", strings.Count(string(out), "ran\n"), callers*calls)
		}
	})
}

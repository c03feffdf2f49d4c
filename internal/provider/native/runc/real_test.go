package runc

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// TestRealPrograms runs the host's own tools under the filter: what agents use
// has to work.
func TestRealPrograms(t *testing.T) {
	h := newHost(t)
	var binds []machine.Bind
	for _, d := range []string{"usr", "lib", "lib64", "etc"} {
		if to, err := filepath.EvalSymlinks("/" + d); err == nil {
			os.MkdirAll(filepath.Join(h.dir, "rootfs", d), 0o755)
			binds = append(binds, machine.Bind{Source: to, Destination: "/" + d, ReadOnly: true})
		}
	}
	m := h.start(t, func(s *machine.Spec) {
		s.Binds = append(s.Binds, binds...)
		s.Limits.MemoryBytes = 1 << 30
	})
	for _, tc := range []struct{ needs, script string }{
		{"git", "cd /job && git init -q repo && cd repo && echo a > a && git add a && git -c user.name=a -c user.email=a@b commit -qm a && git log --oneline"},
		{"perl", `perl -e 'use Socket; socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, 0) or die; fork() or exit 0; wait; open(F, ">/job/p") or die; print "ok\n"'`},
		{"gcc", "cd /job && echo 'int main(){return 0;}' > a.c && gcc a.c -o a.out && ./a.out"},
		{"strace", "strace -f -o /job/strace ls / && [ -s /job/strace ]"},
		{"script", "script -qc 'echo tty' /dev/null"},
		{"/usr/bin/python3", `/usr/bin/python3 -c '
import asyncio, multiprocessing, socket, threading
t = threading.Thread(target=print); t.start(); t.join()
s = socket.create_server(("127.0.0.1", 0)); socket.create_connection(s.getsockname())
asyncio.run(asyncio.sleep(0))
assert multiprocessing.Pool(2).map(abs, [1, -2]) == [1, 2]'`},
	} {
		if _, err := exec.LookPath(tc.needs); err != nil {
			continue
		}
		t.Run(tc.needs, func(t *testing.T) {
			script := "export PATH=/usr/local/bin:/usr/bin:/bin; " + tc.script
			if out, exit := finish(t, m, nil, "sh", "-c", script); exit != (machine.Exit{}) {
				t.Errorf("%+v: %s", exit, out)
			}
		})
	}
}

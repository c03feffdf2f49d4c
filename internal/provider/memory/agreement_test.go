package memory

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
)

// What the interpreter accepts must mean what it means to a real sh with real
// programs, or a suite that passes here would fail elsewhere.
func TestShellAgreesWithRealShell(t *testing.T) {
	real, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh on this host")
	}
	// Where this test began with interrupts ignored, so would the real shell.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, os.Interrupt)
	defer signal.Stop(caught)
	f := newFixture(t)
	for _, script := range []string{
		`echo a; echo b`, `false && echo no || echo yes`, `! true; echo $?; ! false`, `exit 7; echo no`, `exit 256`, `false; exit`,
		`nosuch-program`, `kill -TERM $$; echo no`, `kill -9 $$`, `kill -s INT $$`, `sh -c 'kill -KILL $$'; echo $?`,
		`trap '' TERM; kill -TERM $$; echo still`, `trap '' TERM; trap - TERM; kill $$; echo no`,
		`trap '' TERM; sh -c 'kill -TERM $$; echo inherited'`,
		`echo 'a  $HOME' "b  $HOME" c\ d`, `x=' a  b '; printf '[%s]' $x "$x"`, `x=' a '; printf '[%s]' b$x"c"`,
		`printf '[%s]' '' $no "$no"`, `x=a; echo ${x}b$x`, `printf 'a\tb\101\n'`, `printf '%s=%d;' a 1 b 2`, `printf '%s\n'`, `printf 'a%%b\n' `,
		`sh -c 'printf "[%s]" "$0" "$@" $#' n 'a b' c`, `sh -c 'printf "[%s]" x "$@"' n`, `sh -c 'printf "[%s]" "$@"' n '' ''`,
		`sh -c 'printf "[%s]" "a$@b"' n 1 2`, `sh -c 'echo $1' n 'a   b'`,
		`X=1 sh -c 'echo $X'; echo "[$X]"; X=2; sh -c 'echo "[$X]"'; export X; sh -c 'echo $X'`, `export A=1 B; B=2; sh -c 'echo $A$B'`,
		`echo out; echo err >&2`, `cat no 2>/dev/null; echo $?`, `cat no 2>&1 >x | wc -l`, `echo a >f; echo b >>f; cat <f; wc -c f`,
		`echo x 2>e >o; cat o; wc -c e`, `seq 1 100000 | head -c 6 | cat`, `yes | head -n 2`, `false | true; echo $?; true | false; echo $?`,
		`x=1; echo 2 | read x; echo $x`, `exit 3 | cat; echo $?`, `echo a | tee t1 t2 >/dev/null; cat t1 t2`, `printf abc | sha256sum`,
		`seq 1 3 | while read -r x; do echo "<$x>"; done`, `while false; do true; done; echo $?`, `while true; do exit 4; done`,
		`if test -d .; then echo d; fi; if [ -f . ]; then echo f; else echo n; fi`, `if false; then echo no; fi; echo $?`,
		"echo a # b\n# c\necho d#e", `exec echo a; echo b`, `exec sh -c 'kill -INT $$'`,
		"printf '#!/bin/sh\\necho \"$1\"\\nexit 5\\n' >s; chmod +x s; ./s a; echo $?", `echo a >m; mv m m2; cat m2; test -e m || echo gone`,
		`mkdir -p d/e/f; cd d/e; echo x >f/g; cd ..; cat e/f/g; ls`, `mkdir d; mkdir d 2>/dev/null; echo $?`, `mkdir a/b 2>/dev/null; echo $?`,
		`ln -s a b; readlink b; test -L b; echo $?; cat b 2>/dev/null; echo $?; ln -s c b 2>/dev/null; echo $?; ln -sfn c b; readlink b`,
		`echo x >f; rm f; rm f 2>/dev/null; echo $?; rm -f f; echo $?`, `mkdir d; rm d 2>/dev/null; echo $?; rm -rf d; ls`,
		`echo x >f; chmod 600 f; cat f; mkfifo p; test -p p; echo $?`, `ls nothing 2>/dev/null; echo $?`, `echo a >.h; echo b >v; ls; ls -A`,
		`test a = a && test a != b && test 2 -lt 10 && test -n x && test -z ''; echo $?`, `test -s none; echo $?`, `test 1 -eq 2; echo $?`,
		`printf 'a\nb\nc' | head -n 2; printf 'a\nb\nc' | wc -l`, `printf 'a b\nc\n' | { false; }`, `echo a; if`, `echo "unterminated`,
		`echo -n a; echo b`, `cd nowhere 2>/dev/null; echo $?`, `echo a >d/f 2>/dev/null; echo $((1))`, `: ; :; echo $?`, `x=1; x=$x$x; echo $x`,
		`env -i 2>/dev/null; echo a | cat - f 2>/dev/null; echo $?`, `sleep 0; echo $?`, `sleep x 2>/dev/null; echo $?`, `read x <nothing 2>/dev/null; test $? -ne 0; echo $?`,
		`printf 'one\ntwo\n' >l; while read -r a; do echo "$a!"; done <l`, `echo a | cat | cat | cat; echo b | (cat)`, `tee -a t <x 2>/dev/null; test $? -ne 0; echo $?`,
	} {
		want := exec.Command(real, "-c", script)
		want.Dir = t.TempDir()
		want.Env = []string{"HOME=/home/checkfu", "PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C"}
		wantOut := bytes.Buffer{}
		want.Stdout = &wantOut
		err := want.Run()
		if e := (*exec.ExitError)(nil); err != nil && !errors.As(err, &e) {
			t.Fatal(err)
		}

		id := f.active(request())
		c := shellCommand(script)
		c.WorkingDirectory = "/tmp"
		got, err := f.p.Execute(t.Context(), id, c)
		f.must(err)
		// A text outside the grammar is refused, whatever sh makes of it.
		if bytes.Contains(got.Stderr, []byte("Syntax error")) {
			if got.Exit != (sandbox.Exit{}) && *got.Exit.ExitCode != 2 {
				t.Errorf("%q: refused with %s", script, show(got))
			}
			continue
		}
		wantEnd := sandbox.Settlement{Exit: sandbox.Exited(int64(want.ProcessState.ExitCode()))}
		if want.ProcessState.ExitCode() < 0 {
			status := want.ProcessState.String() // "signal: killed"
			wantEnd.Exit = sandbox.Signaled(map[string]string{"signal: terminated": "SIGTERM", "signal: killed": "SIGKILL", "signal: interrupt": "SIGINT"}[status])
		}
		if show(got) != show(wantEnd) || !bytes.Equal(got.Stdout, wantOut.Bytes()) {
			t.Errorf("%q\nhere    %s %q %q\nreally  %s %q", script, show(got), got.Stdout, got.Stderr, show(wantEnd), wantOut.Bytes())
		}
	}
}

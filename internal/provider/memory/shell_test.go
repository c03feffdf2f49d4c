package memory

import "testing"

func TestShell(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct{ name, script, out, errs, end string }{
		{"sequence", `echo a; echo b`, "a\nb\n", "", "exit 000"},
		{"and or", `false && echo no || echo yes`, "yes\n", "", "exit 000"},
		{"negate", `! true; echo $?; ! false`, "1\n", "", "exit 000"},
		{"exit", `exit 7; echo no`, "", "", "exit 007"},
		{"exit 256", `exit 256`, "", "", "exit 000"},
		{"status", `false; exit`, "", "", "exit 001"},
		{"not found", `nosuch`, "", "sh: nosuch: not found\n", "exit 127"},
		{"not executable", `/workspace/ro`, "", "sh: /workspace/ro: Permission denied\n", "exit 126"},
		{"signal", `kill -TERM $$; echo no`, "", "", "SIGTERM"},
		{"signal 9", `kill -9 $$`, "", "", "SIGKILL"},
		{"signal of a child", `sh -c 'kill -KILL $$'; echo $?`, "137\n", "", "exit 000"},
		{"ignored signal", `trap '' TERM; kill -TERM $$; echo still`, "still\n", "", "exit 000"},
		{"restored signal", `trap '' TERM; trap - TERM; kill $$`, "", "", "SIGTERM"},
		{"quotes", `echo 'a  $HOME' "b  $HOME" c\ d`, "a  $HOME b  /home/checkfu c d\n", "", "exit 000"},
		{"split", `x=' a  b '; printf '[%s]' $x "$x"`, "[a][b][ a  b ]", "", "exit 000"},
		{"empty fields", `printf '[%s]' '' $no "$no"`, "[][]", "", "exit 000"},
		{"braces", `x=a; echo ${x}b$x`, "aba\n", "", "exit 000"},
		{"escapes", `printf 'a\tb\101\n'`, "a\tbA\n", "", "exit 000"},
		{"printf repeats", `printf '%s=%d;' a 1 b 2`, "a=1;b=2;", "", "exit 000"},
		{"positional", `sh -c 'printf "[%s]" "$0" "$@" $#' n 'a b' c`, "[n][a b][c][2]", "", "exit 000"},
		{"no positional", `sh -c 'printf "[%s]" x "$@"' n`, "[x]", "", "exit 000"},
		{"assign", `X=1 env; X=2; env; export X; env`, "HOME=/home/checkfu\nX=1\nHOME=/home/checkfu\nHOME=/home/checkfu\nX=2\n", "", "exit 000"},
		{"streams", `echo out; echo err >&2`, "out\n", "err\n", "exit 000"},
		{"merge", `cat /no 2>&1`, "cat: /no: No such file or directory\n", "", "exit 001"},
		{"order of redirections", `cat /no 2>&1 >/tmp/x`, "cat: /no: No such file or directory\n", "", "exit 001"},
		{"files", `echo a >/tmp/f; echo b >>/tmp/f; cat </tmp/f; wc -c /tmp/f`, "a\nb\n4 /tmp/f\n", "", "exit 000"},
		{"read-only root", `echo x >/x`, "", "sh: cannot create /x: Read-only file system\n", "exit 001"},
		{"sealed mount", `echo x >/workspace/ro/x`, "", "sh: cannot create /workspace/ro/x: Read-only file system\n", "exit 001"},
		{"sealed nested mount", `mkdir /workspace/rw/sealed/d`, "", "mkdir: cannot create directory '/workspace/rw/sealed/d': Read-only file system\n", "exit 001"},
		{"control root", `echo x >/workspace/.checkfu/x`, "", "sh: cannot create /workspace/.checkfu/x: Read-only file system\n", "exit 001"},
		{"link out of a mount", `ln -s /workspace/ro/x /workspace/rw/l; echo x >/workspace/rw/l; rm /workspace/rw/l`, "", "sh: cannot create /workspace/rw/l: Read-only file system\n", "exit 000"},
		{"mount point", `rm -rf /workspace/rw/sealed`, "", "rm: cannot remove '/workspace/rw/sealed': Device or resource busy\n", "exit 001"},
		{"mount point within", `rm -rf /workspace/rw`, "", "rm: cannot remove '/workspace/rw': Device or resource busy\n", "exit 001"},
		{"places to write", `for_=1; echo a >/tmp/a; echo b >$HOME/b; echo c >/mnt/session/outputs/c; echo d >/workspace/rw/d; cat /tmp/a $HOME/b /mnt/session/outputs/c /workspace/rw/d`, "a\nb\nc\nd\n", "", "exit 000"},
		{"unreadable", `echo x >/tmp/u; chmod 000 /tmp/u; cat /tmp/u; rm /tmp/u`, "", "cat: /tmp/u: Permission denied\n", "exit 000"},
		{"link loop", `ln -s l /tmp/l; cat /tmp/l; rm /tmp/l`, "", "cat: /tmp/l: Too many levels of symbolic links\n", "exit 000"},
		{"dot dot", `mkdir -p /tmp/d/e; cd /tmp/d/e; echo x >../f; cat /tmp/d/f; pwd`, "x\n/tmp/d/e\n", "", "exit 000"},
		{"pipe", `seq 1 100000 | head -c 6 | cat`, "1\n2\n3\n", "", "exit 000"},
		{"endless writer", `yes | head -n 2`, "y\ny\n", "", "exit 000"},
		{"pipe status", `false | true; echo $?; true | false; echo $?`, "0\n1\n", "", "exit 000"},
		{"pipe is a copy", `x=1; echo 2 | read x; echo $x`, "1\n", "", "exit 000"},
		{"exit in a pipe", `exit 3 | cat; echo $?`, "0\n", "", "exit 000"},
		{"tee", `echo a | tee /tmp/t1 /tmp/t2 >/dev/null; cat /tmp/t1 /tmp/t2`, "a\na\n", "", "exit 000"},
		{"digest", `printf abc | sha256sum`, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  -\n", "", "exit 000"},
		{"while", `seq 1 3 | while read -r x; do echo "<$x>"; done`, "<1>\n<2>\n<3>\n", "", "exit 000"},
		{"while status", `while false; do true; done; echo $?`, "0\n", "", "exit 000"},
		{"exit in while", `while true; do exit 4; done`, "", "", "exit 004"},
		{"if", `if test -d /tmp; then echo d; fi; if [ -f /tmp ]; then echo f; else echo n; fi`, "d\nn\n", "", "exit 000"},
		{"if status", `if false; then echo no; fi; echo $?`, "0\n", "", "exit 000"},
		{"comment", "echo a # b\n# c\necho d#e", "a\nd#e\n", "", "exit 000"},
		{"identity", `id -u; uname -m`, "10001\nx86_64\n", "", "exit 000"},
		{"exec", `exec echo a; echo b`, "a\n", "", "exit 000"},
		{"exec signal", `exec sh -c 'kill -INT $$'`, "", "", "SIGINT"},
		{"script", `printf '#!/bin/sh\necho "$0 $1"\nexit 5\n' >/tmp/s; chmod +x /tmp/s; /tmp/s a; echo $?`, "/tmp/s a\n5\n", "", "exit 000"},
		{"not a program", `echo x >/tmp/n; chmod 755 /tmp/n; /tmp/n`, "", "sh: /tmp/n: Exec format error\n", "exit 126"},
		{"path", `mkdir -p /tmp/p; printf '#!/bin/sh\necho mine\n' >/tmp/p/cat; chmod +x /tmp/p/cat; PATH=/tmp/p:/bin; export PATH; cat`, "mine\n", "", "exit 000"},
		{"recursion", `printf '#!/bin/sh\n/tmp/r\n' >/tmp/r; chmod +x /tmp/r; /tmp/r 2>/dev/null || echo ended`, "ended\n", "", "exit 000"},
		{"fork bomb", `printf '#!/bin/sh\n/tmp/b | /tmp/b\n' >/tmp/b; chmod +x /tmp/b; /tmp/b 2>/dev/null; echo ended`, "ended\n", "", "exit 000"},
		{"move", `echo a >/tmp/m; mv /tmp/m /tmp/m2; cat /tmp/m2; test -e /tmp/m || echo gone`, "a\ngone\n", "", "exit 000"},
		{"timeout", `echo before; sleep 11; echo after`, "before\n", "", "timed out"},
		{"timeout of the last moment", `sleep 9; echo in time`, "in time\n", "", "exit 000"},
		{"timeout of a stage", `echo a; sleep 20 | cat; echo b`, "a\n", "", "timed out"},
		{"timeout of an endless program", `yes >/dev/null`, "", "", "timed out"},
		{"timeout of an endless loop", `while true; do true; done`, "", "", "timed out"},
		{"timeout of an endless pipe", `yes | cat >/dev/null`, "", "", "timed out"},
		{"fifo", `mkfifo /tmp/q; cat /tmp/q`, "", "", "timed out"},
		{"nc with a limit", `nc -w 4 example.com 443; echo $?; nc -w 4; nc example.com 443`, "1\n", "nc: only -z HOST PORT and -w SECONDS HOST PORT are supported\nnc: only -z HOST PORT and -w SECONDS HOST PORT are supported\n", "exit 001"},
		{"command", `command -v nc; command -v cd; command -v /bin/nc; command -v /bin/absent || echo $?; PATH=/tmp; command -v nc; command nc`, "/usr/bin/nc\ncd\n/bin/nc\n127\n", "sh: command: only -v NAME is supported\n", "exit 002"},
		{"network none", `nc -z example.com 443; echo $?; connect example.com 443`, "1\n", "connect: example.com:443: denied\n", "exit 001"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := *f
			g.T = t
			s := g.run(g.active(request()), c.script)
			if got := show(s); got != c.end {
				t.Errorf("%s, want %s", got, c.end)
			}
			if string(s.Stdout) != c.out || string(s.Stderr) != c.errs {
				t.Errorf("stdout %q stderr %q\nwant   %q        %q", s.Stdout, s.Stderr, c.out, c.errs)
			}
		})
	}
}

// What is not in the grammar is refused before anything runs.
func TestShellRefuses(t *testing.T) {
	f := newFixture(t)
	id := f.active(request())
	for _, script := range []string{
		"echo `id`", "echo $(id)", `echo "$(id)"`, "echo *", "echo a?", "echo [ab]", "echo ~", "sleep 1 &", "cat <<E", "echo a >| b",
		"for x in a; do echo; done", "case a in a) ;; esac", "f() { echo; }", "{ echo; }", "(echo)", "echo 'a", `echo "a`, "echo a |", "| a", "a &&", "&& a",
		"a;; b", "while true; do done", "while do a; done", "while true; do a", "if a; then b", "if a; fi", "done", "echo >", "echo ${a-b}", "echo 3>a", "echo >&3",
		`echo a\`, "! ! a", "if a; then b; fi c", "until a; do b; done", "echo $*",
	} {
		s := f.run(id, "echo ran; "+script)
		if show(s) != "exit 002" || len(s.Stdout) > 0 {
			t.Errorf("%q: %s %q %q", script, show(s), s.Stdout, s.Stderr)
		}
		contains(t, s.Stderr, "Syntax error")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "a;b", "a && b || c | d", "while a; do b; done", "if a; then b; else c; fi", `x="$y"'z'\ ${w}`, "a 2>&1 >>b <c", "! a # b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		first, err := parse(src)
		second, again := parse(src)
		if (err == nil) != (again == nil) || len(first) != len(second) {
			t.Fatalf("%q parses differently twice", src)
		}
	})
}

package memory

import (
	"io"
	"strconv"
	"strings"
)

// builtins are the commands that change the shell itself.
var builtins map[string]func(sh *shell, args []string) int

func init() {
	builtins = map[string]func(*shell, []string) int{
		":":  func(*shell, []string) int { return 0 },
		"cd": builtinCd, "command": builtinCommand, "exec": builtinExec, "exit": builtinExit, "export": builtinExport,
		"kill": builtinKill, "read": builtinRead, "trap": builtinTrap,
	}
}

var signalNumbers = map[string]int{
	"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGABRT": 6, "SIGKILL": 9,
	"SIGUSR1": 10, "SIGSEGV": 11, "SIGUSR2": 12, "SIGPIPE": 13, "SIGALRM": 14, "SIGTERM": 15,
}

// signalName takes TERM, SIGTERM or 15.
func signalName(s string) (string, bool) {
	for name, number := range signalNumbers {
		if s == name || "SIG"+s == name || s == strconv.Itoa(number) {
			return name, true
		}
	}
	return "", false
}

func builtinExit(sh *shell, args []string) int {
	code := sh.last
	if len(args) > 0 {
		n, err := strconv.Atoi(args[0])
		if err != nil || n < 0 {
			return sh.call.fail(2, "exit: Illegal number: "+args[0])
		}
		code = n & 0xff
	}
	sh.last, sh.ended = code, true
	return code
}

func builtinCd(sh *shell, args []string) int {
	dir := sh.vars["HOME"]
	if len(args) > 0 {
		dir = args[0]
	}
	n, path, err := sh.call.stage.job.m.tree.lookup(sh.call.abs(dir), true)
	if err == nil && n.kind != directory {
		err = errNotDirectory
	}
	if err == nil && n.mode&0o100 == 0 {
		err = errDenied
	}
	if err != nil {
		return sh.call.fail(2, "cd: can't cd to "+dir+": "+err.Error())
	}
	sh.call.Dir = path
	return 0
}

// builtinCommand says where a program is: all of "command" that there is.
func builtinCommand(sh *shell, args []string) int {
	if len(args) != 2 || args[0] != "-v" {
		return sh.call.fail(2, "command: only -v NAME is supported")
	}
	name := args[1]
	path, ok := sh.vars["PATH"]
	if !ok {
		path = defaultPath
	}
	found := ""
	switch {
	case builtins[name] != nil:
		found = name
	case strings.Contains(name, "/"):
		if _, _, err := sh.call.load(sh.call.abs(name), args[1:]); err == nil {
			found = name
		}
	default:
		for dir := range strings.SplitSeq(path, ":") {
			at := dir + "/" + name
			if dir == "" {
				at = "./" + name
			}
			if _, _, err := sh.call.load(sh.call.abs(at), args[1:]); err == nil {
				found = at
				break
			}
		}
	}
	if found == "" {
		return 127
	}
	_, err := io.WriteString(sh.call.Stdout, found+"\n")
	return sh.call.done(err)
}

func builtinExec(sh *shell, args []string) int {
	if len(args) == 0 {
		return sh.call.fail(2, "exec: redirections alone are unsupported")
	}
	env := map[string]string{}
	for name := range sh.export {
		env[name] = sh.vars[name]
	}
	call := *sh.call
	call.Env = env
	if call.stage.depth == 1 {
		call.stage.job.leave(&call)
	}
	// The program takes the shell's place, and its own end.
	sh.call.stage.depth--
	code, err := call.start(args)
	sh.call.stage.depth++
	if err != nil {
		code = sh.call.fail(exitFor(err), "exec: "+args[0]+": "+err.Error())
	}
	sh.last, sh.ended = code, true
	return code
}

func builtinExport(sh *shell, args []string) int {
	for _, a := range args {
		name, value, set := strings.Cut(a, "=")
		if !isName(name) {
			return sh.call.fail(2, "export: "+name+": bad variable name")
		}
		if set {
			sh.vars[name] = value
		}
		sh.export[name] = true
	}
	return 0
}

func builtinKill(sh *shell, args []string) int {
	signal := "SIGTERM"
	if len(args) > 0 && args[0] == "-s" && len(args) > 1 {
		args = append([]string{"-" + args[1]}, args[2:]...)
	}
	if len(args) > 0 && strings.HasPrefix(args[0], "-") {
		name, ok := signalName(args[0][1:])
		if !ok {
			return sh.call.fail(2, "kill: Illegal option "+args[0])
		}
		signal, args = name, args[1:]
	}
	if len(args) != 1 {
		return sh.call.fail(2, "kill: one process id wanted")
	}
	if args[0] != strconv.FormatInt(sh.pid, 10) {
		return sh.call.fail(1, "kill: No such process")
	}
	job := sh.call.stage.job
	job.mu.Lock()
	ignored := job.ignored[signal]
	job.mu.Unlock()
	if !ignored || signal == "SIGKILL" {
		sh.call.stage.die(signal)
	}
	return 0
}

func builtinTrap(sh *shell, args []string) int {
	if len(args) < 2 || args[0] != "" && args[0] != "-" {
		return sh.call.fail(2, "trap: only '' or - and signals are supported")
	}
	job := sh.call.stage.job
	job.mu.Lock()
	defer job.mu.Unlock()
	for _, a := range args[1:] {
		name, ok := signalName(a)
		if !ok {
			return sh.call.fail(1, "trap: "+a+": bad trap")
		}
		job.ignored[name] = args[0] == ""
	}
	return 0
}

// builtinRead reads one line, byte by byte, so that what follows is left to
// the next program.
func builtinRead(sh *shell, args []string) int {
	if len(args) > 0 && args[0] == "-r" {
		args = args[1:]
	}
	if len(args) != 1 || !isName(args[0]) {
		return sh.call.fail(2, "read: one name wanted")
	}
	var line []byte
	b := make([]byte, 1)
	code := 0
	for {
		n, err := sh.call.Stdin.Read(b)
		if n == 1 {
			if b[0] == '\n' {
				break
			}
			if line = append(line, b[0]); len(line) > maxValue {
				return sh.call.fail(1, "read: "+errTooLong.Error())
			}
			continue
		}
		if err != nil {
			if err != io.EOF {
				return 1
			}
			code = 1
			break
		}
	}
	sh.vars[args[0]] = strings.Trim(string(line), " \t")
	return code
}

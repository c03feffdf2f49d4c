package memory

import (
	"errors"
	"io"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"
)

// shell interprets one script. It is used by one goroutine; a pipeline's
// stages get copies.
type shell struct {
	call   *Call
	vars   map[string]string // exported and not; all are passed on once exported
	export map[string]bool
	args   []string // $0, $1, …
	pid    int64
	last   int
	ended  bool // exit was called
}

// maxValue bounds one expanded word, so that x=$x$x cannot eat the host.
const maxValue = 1 << 20

// runShell is the program sh: -c SCRIPT [NAME [ARG…]], or FILE [ARG…], or a
// script from standard input.
func runShell(c *Call) int {
	sh := &shell{call: c, vars: map[string]string{}, export: map[string]bool{}, pid: c.stage.job.pid}
	if c.stage.depth > 1 {
		sh.pid = c.stage.job.m.pids.Add(1)
	}
	maps.Copy(sh.vars, c.Env)
	for name := range c.Env {
		sh.export[name] = true
	}
	args := c.Args
	var script string
	switch {
	case len(args) > 0 && args[0] == "-c":
		if len(args) < 2 {
			return c.fail(2, "-c requires an argument")
		}
		script, sh.args = args[1], args[2:]
		if len(sh.args) == 0 {
			sh.args = []string{"sh"}
		}
	case len(args) > 0 && !strings.HasPrefix(args[0], "-"):
		data, err := c.ReadFile(args[0])
		if err != nil {
			return c.fail(127, "cannot open "+args[0]+": "+err.Error())
		}
		script, sh.args = string(data), args
	case len(args) == 0:
		data, err := io.ReadAll(io.LimitReader(c.Stdin, maxScript+1))
		if err != nil {
			return 1
		}
		script, sh.args = string(data), []string{"sh"}
	default:
		return c.fail(2, "Illegal option "+args[0])
	}
	l, err := parse(script)
	if err != nil {
		return c.fail(2, err.Error())
	}
	sh.run(l)
	return sh.last
}

func (sh *shell) stopped() bool { return sh.ended || sh.call.stage.stop != nil }

func (sh *shell) run(l list) {
	for _, it := range l {
		if sh.stopped() {
			return
		}
		if it.op == "&&" && sh.last != 0 || it.op == "||" && sh.last == 0 {
			continue
		}
		sh.pipeline(it.pipe)
		if it.pipe.negate && !sh.stopped() {
			sh.last = btoi(sh.last == 0)
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// pipeline runs its stages at once, each in a copy of the shell.
func (sh *shell) pipeline(p pipeline) {
	if len(p.commands) == 1 {
		sh.last = sh.command(&p.commands[0])
		return
	}
	parent := sh.call.stage
	m, width := parent.job.m, int64(len(p.commands))
	defer m.live.Add(-width)
	if m.live.Add(width) > m.processes || parent.depth >= m.depth {
		sh.last = sh.call.fail(2, errFork.Error())
		return
	}
	stages := make([]*stage, len(p.commands))
	codes := make([]int, len(p.commands))
	var wait sync.WaitGroup
	in, inPipe := sh.call.Stdin, (*pipe)(nil)
	for i := range p.commands {
		st := &stage{job: parent.job, elapsed: parent.elapsed, depth: parent.depth + 1}
		stages[i] = st
		call := *sh.call
		call.stage, call.Stdin = st, rebind(in, st)
		call.Stdout, call.Stderr = rebindOut(call.Stdout, st), rebindOut(call.Stderr, st)
		sub := &shell{call: &call, vars: maps.Clone(sh.vars), export: maps.Clone(sh.export), args: sh.args, pid: sh.pid, last: sh.last}
		from, to := inPipe, (*pipe)(nil)
		if i+1 < len(p.commands) {
			to = parent.job.pipe()
			call.Stdout = pipeWriter{writer{st, to}}
			in, inPipe = to, to
		}
		wait.Go(func() {
			codes[i] = sub.command(&p.commands[i])
			end := error(io.EOF)
			if st.stop == errDeadline {
				end = errDeadline
			}
			if to != nil {
				to.closeWrite(end)
			}
			if from != nil {
				if end == io.EOF {
					end = errBrokenPipe
				}
				from.closeRead(end)
				parent.job.drop(from)
			}
		})
	}
	wait.Wait()
	sh.last = codes[len(codes)-1]
	// The pipeline took as long as its longest stage. One that was cut off by
	// its reader does not count: how far it came is chance.
	for i, st := range stages {
		switch {
		case st.stop == errSignal:
			if i+1 == len(stages) {
				sh.last = 128 + signalNumbers[st.signal]
			}
		case st.stop == nil:
			parent.elapsed = max(parent.elapsed, st.elapsed)
		case parent.stop != errKilled:
			parent.elapsed, parent.stop = st.elapsed, st.stop
		}
	}
}

// command runs a simple or compound command and returns its status.
func (sh *shell) command(c *command) int {
	st := sh.call.stage
	if st.charge(commandCost) != nil {
		return 1
	}
	saved := *sh.call
	defer func() {
		sh.call.Stdin, sh.call.Stdout, sh.call.Stderr = saved.Stdin, saved.Stdout, saved.Stderr
	}()
	words, err := sh.fields(c.words)
	if err != nil {
		return sh.call.fail(2, err.Error())
	}
	for _, r := range c.redirs {
		if err := sh.redirect(r); err != nil {
			if st.stop != nil {
				return 1
			}
			return saved.fail(1, err.Error())
		}
	}
	switch {
	case c.loop:
		status := 0
		for !sh.stopped() {
			if sh.run(c.cond); sh.last != 0 || sh.stopped() {
				break
			}
			sh.run(c.body)
			status = sh.last
		}
		if sh.ended {
			return sh.last
		}
		return status
	case c.branch:
		if sh.run(c.cond); sh.stopped() {
			return sh.last
		}
		body := c.body
		if sh.last != 0 {
			body = c.otherwise
		}
		sh.last = 0
		sh.run(body)
		return sh.last
	}
	values := make(map[string]string, len(c.assigns))
	for _, a := range c.assigns {
		v, err := sh.join(a.value)
		if err != nil {
			return sh.call.fail(2, err.Error())
		}
		values[a.name] = v
		if len(words) == 0 {
			sh.vars[a.name] = v
		}
	}
	if len(words) == 0 {
		return 0
	}
	if b := builtins[words[0]]; b != nil {
		return b(sh, words[1:])
	}
	env := map[string]string{}
	for name := range sh.export {
		env[name] = sh.vars[name]
	}
	maps.Copy(env, values)
	call := *sh.call
	call.Env = env
	code, err := call.start(words)
	if err != nil {
		what := err.Error()
		if err == errNotFound {
			what = "not found"
		}
		return sh.call.fail(exitFor(err), words[0]+": "+what)
	}
	return code
}

// exitFor is the shell's status for a program that could not be started.
func exitFor(err error) int {
	if errors.Is(err, errNotFound) || errors.Is(err, errNotDirectory) {
		return 127
	}
	return 126
}

func (sh *shell) redirect(r redirection) error {
	c := sh.call
	if r.op == ">&" {
		to := c.Stdout
		if r.target[0].text == "2" {
			to = c.Stderr
		}
		if r.fd == 1 {
			c.Stdout = to
		} else {
			c.Stderr = to
		}
		return nil
	}
	name, err := sh.join(r.target)
	if err != nil {
		return err
	}
	verb, mode := "cannot create ", forWrite
	switch r.op {
	case "<":
		verb, mode = "cannot open ", forRead
	case ">>":
		mode = forAppend
	}
	in, out, err := c.open(name, mode)
	if err != nil {
		return errors.New(verb + name + ": " + err.Error())
	}
	switch r.fd {
	case 0:
		c.Stdin = in
	case 1:
		c.Stdout = out
	case 2:
		c.Stderr = out
	}
	return nil
}

// fields expands words into arguments: unquoted parameters are split at
// blanks, "$@" gives one field for each argument.
func (sh *shell) fields(words []word) ([]string, error) {
	var out []string
	total := 0
	for _, w := range words {
		var field []byte
		open := false
		add := func(s string) {
			field, open = append(field, s...), true
			total += len(s)
		}
		flush := func() {
			if open {
				out = append(out, string(field))
				total++
			}
			field, open = field[:0], false
		}
		for _, p := range w {
			switch {
			case p.param == "" && (p.quoted || p.text != ""):
				add(p.text)
			case p.param == "":
			case p.param == "@" && p.quoted:
				for i, a := range sh.args[1:] {
					if i > 0 {
						flush()
					}
					add(a)
				}
				// "$@" without arguments is no field, even between quotes.
				open = open && (len(sh.args) > 1 || len(field) > 0)
			case p.quoted:
				add(sh.value(p.param))
			default:
				for v := sh.value(p.param); v != ""; {
					if strings.IndexByte(" \t\n", v[0]) >= 0 {
						flush()
						v = strings.TrimLeft(v, " \t\n")
						continue
					}
					end := strings.IndexAny(v, " \t\n")
					if end < 0 {
						end = len(v)
					}
					add(v[:end])
					v = v[end:]
				}
			}
			if total > maxValue {
				return nil, sh.tooLong()
			}
		}
		flush()
	}
	return out, sh.call.stage.charge(time.Duration(total) * byteCost)
}

//lint:ignore ST1005 the system's own words, shown as a shell shows them
var errTooLong = errors.New("Argument list too long")

// tooLong costs as much as the text would have.
func (sh *shell) tooLong() error {
	if err := sh.call.stage.charge(maxValue * byteCost); err != nil {
		return err
	}
	return errTooLong
}

// join expands a word without splitting it, as in an assignment.
func (sh *shell) join(w word) (string, error) {
	var s []byte
	for _, p := range w {
		if p.param == "" {
			s = append(s, p.text...)
		} else {
			s = append(s, sh.value(p.param)...)
		}
		if len(s) > maxValue {
			return "", sh.tooLong()
		}
	}
	return string(s), sh.call.stage.charge(time.Duration(len(s)) * byteCost)
}

func (sh *shell) value(param string) string {
	switch param {
	case "?":
		return strconv.Itoa(sh.last)
	case "$":
		return strconv.FormatInt(sh.pid, 10)
	case "#":
		return strconv.Itoa(len(sh.args) - 1)
	case "@":
		return strings.Join(sh.args[1:], " ")
	}
	if n, err := strconv.Atoi(param); err == nil {
		if n < len(sh.args) {
			return sh.args[n]
		}
		return ""
	}
	return sh.vars[param]
}

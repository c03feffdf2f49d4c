package memory

import (
	"bytes"
	"io"
	"strings"
	"time"
)

// Program is one program of a machine. It returns its exit status, 0 to 255.
// It must end soon after a stream of its Call fails: that is how it is killed.
type Program func(c *Call) int

// Call is one run of a program. Its streams belong to the program until it
// returns and may be used by one goroutine at a time.
type Call struct {
	Name   string   // as it was called
	Args   []string // without the name
	Env    map[string]string
	Dir    string
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	stage *stage
}

// fail writes one line of diagnosis and returns code.
func (c *Call) fail(code int, what string) int {
	io.WriteString(c.Stderr, c.Name+": "+what+"\n")
	return code
}

// abs makes a guest path absolute.
func (c *Call) abs(path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	return c.Dir + "/" + path
}

// ReadFile reads a file of the machine as the workload.
func (c *Call) ReadFile(path string) ([]byte, error) {
	in, _, err := c.open(path, forRead)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(in)
}

// WriteFile replaces or makes a file of the machine as the workload.
func (c *Call) WriteFile(path string, data []byte) error {
	_, out, err := c.open(path, forWrite)
	if err == nil {
		_, err = out.Write(data)
	}
	return err
}

// Connect says whether the machine's network lets it connect to host and port.
func (c *Call) Connect(host, port string) bool { return c.stage.job.m.reach(host, port) }

// Sleep lets d pass. An error means that the program was killed meanwhile.
func (c *Call) Sleep(d time.Duration) error { return c.stage.sleep(d) }

// Killed is closed when the program was killed from outside.
func (c *Call) Killed() <-chan struct{} { return c.stage.job.done }

func (c *Call) open(path string, mode openMode) (io.Reader, io.Writer, error) {
	if path == "" {
		return nil, nil, errNotFound
	}
	in, out, err := c.stage.job.m.tree.open(c.abs(path), mode)
	if err == errBlocks {
		return nil, nil, c.stage.block()
	}
	if err != nil {
		return nil, nil, err
	}
	if in != nil {
		in = reader{c.stage, in}
	}
	if out != nil {
		out = writer{c.stage, out}
	}
	return in, out, err
}

// rebind gives a stream of one stage to another.
func rebind(r io.Reader, s *stage) io.Reader {
	if bound, ok := r.(reader); ok {
		r = bound.from
	}
	return reader{s, r}
}

func rebindOut(w io.Writer, s *stage) io.Writer {
	switch bound := w.(type) {
	case pipeWriter:
		return pipeWriter{writer{s, bound.to}}
	case writer:
		return writer{s, bound.to}
	}
	return writer{s, w}
}

// pipeWriter writes to the next stage. It takes no time: how often it writes
// before it learns that its reader is gone is chance.
type pipeWriter struct{ writer }

func (w pipeWriter) Write(b []byte) (int, error) {
	if err := w.s.charge(0); err != nil {
		return 0, err
	}
	n, err := w.to.Write(b)
	return w.settle(n, err)
}

// programMagic begins the content of a program in /bin; its name follows.
const programMagic = "\x7fCHECKFU\x00"

const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// start runs argv with c's streams, environment and directory, and returns its
// status, or an error if it could not be started.
func (c *Call) start(argv []string) (int, error) {
	if c.stage.depth >= c.stage.job.m.depth {
		return 0, errFork
	}
	program, args, err := c.resolve(argv)
	if err != nil {
		return 0, err
	}
	return c.run(program, argv[0], args), nil
}

// run runs a program that resolve found.
func (c *Call) run(program Program, name string, args []string) int {
	st := c.stage
	st.depth++
	call := *c
	call.Name, call.Args = name, args
	code := program(&call) & 0xff
	st.depth--
	// What died by a signal is a status for whoever started it; the first
	// program of the job is left to say so itself.
	if st.stop == errSignal && st.depth > 0 {
		code = 128 + signalNumbers[st.signal]
		st.stop, st.signal = nil, ""
	}
	return code
}

// resolve finds the program that argv names.
func (c *Call) resolve(argv []string) (Program, []string, error) {
	name := argv[0]
	if strings.Contains(name, "/") {
		return c.load(c.abs(name), argv)
	}
	path, ok := c.Env["PATH"]
	if !ok {
		path = defaultPath
	}
	found := error(errNotFound)
	for dir := range strings.SplitSeq(path, ":") {
		if dir == "" {
			dir = "."
		}
		program, args, err := c.load(c.abs(dir+"/"+name), argv)
		if err == nil {
			return program, args, nil
		}
		if err != errNotFound && err != errNotDirectory {
			found = err
		}
	}
	return nil, nil, found
}

// load takes the file at path as a program: one of /bin, or a script.
func (c *Call) load(path string, argv []string) (Program, []string, error) {
	n, _, err := c.stage.job.m.tree.lookup(path, true)
	switch {
	case err != nil:
		return nil, nil, err
	case n.kind != regular || n.mode&0o100 == 0:
		return nil, nil, errDenied
	}
	if name, ok := bytes.CutPrefix(n.data, []byte(programMagic)); ok {
		if p := c.stage.job.m.programs[string(name)]; p != nil {
			return p, argv[1:], nil
		}
		return nil, nil, errExec
	}
	if bytes.HasPrefix(n.data, []byte("#!/bin/sh\n")) {
		return runShell, append([]string{path}, argv[1:]...), nil
	}
	return nil, nil, errExec
}

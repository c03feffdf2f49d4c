package sandbox

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func goodCommand() Command {
	return Command{Executable: "/bin/sh", Arguments: []string{"-c", ""}, WorkingDirectory: "/a", Environment: map[string]string{"A": "b"},
		Stdin: []byte("x"), TimeoutSeconds: 1, OutputLimitBytes: 1}
}

func goodProcess() ProcessRequest {
	return ProcessRequest{Executable: "cat", Arguments: []string{"-"}, WorkingDirectory: "/", Environment: map[string]string{"_": ""}}
}

func TestBounds_Command(t *testing.T) {
	rules(t, goodCommand, "", []broken[Command]{
		{"executable", func(c *Command) { c.Executable = "" }},
		{"executable", func(c *Command) { c.Executable = "a\x00" }},
		{"executable", func(c *Command) { c.Executable = strings.Repeat("a", 4097) }},
		{"arguments[1]", func(c *Command) { c.Arguments[1] = "a\x00" }},
		{"arguments", func(c *Command) { c.Arguments = make([]string, 257) }},
		{"working_directory", func(c *Command) { c.WorkingDirectory = "" }},
		{"working_directory", func(c *Command) { c.WorkingDirectory = "a" }},
		{"working_directory", func(c *Command) { c.WorkingDirectory = "/a/.." }},
		{"", func(c *Command) { c.WorkingDirectory = "/" }},
		{"environment", func(c *Command) { c.Environment["1A"] = "" }},
		{"environment.A", func(c *Command) { c.Environment["A"] = "\x00" }},
		{"", func(c *Command) { c.Environment, c.Arguments, c.Stdin = nil, nil, nil }},
		{"stdin", func(c *Command) { c.Stdin = make([]byte, MaxFileBytes+1) }},
		{"", func(c *Command) { c.Stdin = make([]byte, MaxFileBytes) }},
		{"timeout_seconds", func(c *Command) { c.TimeoutSeconds = 0 }},
		{"timeout_seconds", func(c *Command) { c.TimeoutSeconds = MaxInteger + 1 }},
		{"output_limit_bytes", func(c *Command) { c.OutputLimitBytes = 0 }},
		{"output_limit_bytes", func(c *Command) { c.OutputLimitBytes = MaxOutputBytes + 1 }},
		{"", func(c *Command) { c.OutputLimitBytes = MaxOutputBytes }},
	})
	with := func(change func(*Command)) error { c := goodCommand(); change(&c); return c.Validate() }
	bound(t, "arguments", MaxArguments, func(n int) error { return with(func(c *Command) { c.Arguments = make([]string, n) }) })
	bound(t, "arguments[0]", MaxArgumentBytes, func(n int) error {
		return with(func(c *Command) { c.Arguments = []string{strings.Repeat("a", n)} })
	})
	bound(t, "environment.A", MaxEnvironmentBytes, func(n int) error {
		return with(func(c *Command) { c.Environment["A"] = strings.Repeat("a", n) })
	})
	bound(t, "environment", MaxEnvironment, func(n int) error {
		return with(func(c *Command) {
			c.Environment = map[string]string{}
			for i := range n {
				c.Environment["A"+strconv.Itoa(i)] = ""
			}
		})
	})
}

func TestOpenProcess_Request(t *testing.T) {
	rules(t, goodProcess, "", []broken[ProcessRequest]{
		{"executable", func(r *ProcessRequest) { r.Executable = "" }},
		{"arguments[0]", func(r *ProcessRequest) { r.Arguments[0] = "\x00" }},
		{"working_directory", func(r *ProcessRequest) { r.WorkingDirectory = "." }},
		{"environment", func(r *ProcessRequest) { r.Environment["A=B"] = "" }},
	})
}

// TestBounds_EnvironmentKeys: ^[A-Za-z_][A-Za-z0-9_]*$, and no value in an
// error.
func TestBounds_EnvironmentKeys(t *testing.T) {
	for _, good := range []string{"A", "_", "a1", "PATH", "_1"} {
		named(t, CheckEnvironment(good, "v"), "")
	}
	for _, bad := range []string{"", "1", "A-B", "A=", "A ", "é", "A\x00", "A\n"} {
		named(t, CheckEnvironment(bad, "v"), "environment")
	}
	if err := CheckEnvironment("TOKEN", "hunter2\x00"); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

func FuzzCommand(f *testing.F) {
	f.Add("sh", "-c", "/", "A", "b", int64(1), int64(1))
	f.Add("a\x00", "\x00", "/a/..", "1", "\x00", int64(-1), int64(1<<40))
	f.Fuzz(func(t *testing.T, executable, argument, directory, key, value string, timeout, limit int64) {
		c := Command{Executable: executable, Arguments: []string{argument}, WorkingDirectory: directory,
			Environment: map[string]string{key: value}, TimeoutSeconds: timeout, OutputLimitBytes: limit}
		err := c.Validate()
		if err != nil {
			if _, ok := err.(*Invalid); !ok {
				t.Errorf("%T", err)
			}
			return
		}
		all := slices.Concat([]string{executable, directory, argument}, slices.Collect(maps.Keys(c.Environment)), slices.Collect(maps.Values(c.Environment)))
		if strings.Contains(strings.Join(all, ""), "\x00") || directory[0] != '/' || strings.ContainsAny(key, "= \n") || limit > MaxOutputBytes || timeout < 1 {
			t.Errorf("took %+v", c)
		}
	})
}

func TestExit(t *testing.T) {
	code := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		exit  Exit
		field string
	}{
		{Exited(0), ""}, {Exited(255), ""}, {Exited(256), "exit_code"}, {Exited(-1), "exit_code"}, {Exit{}, "exit"},
		{Exit{code(0), "SIGKILL"}, "exit"}, {Signaled("SIGKILL"), ""}, {Signaled("SIGRTMIN+12"), ""}, {Signaled("SIG"), "signal"},
		{Signaled("KILL"), "signal"}, {Signaled("SIGkill"), "signal"}, {Signaled("SIGABCDEFGHIJKL"), ""}, {Signaled("SIGABCDEFGHIJKLM"), "signal"},
		{Signaled("SIGKILL "), "signal"}, {Signaled("SIG-1"), "signal"},
	} {
		named(t, c.exit.Validate(), c.field)
	}
}

func TestOperations_Settlement(t *testing.T) {
	good := func() Settlement {
		return Settlement{Exit: Exited(0), StartedAt: noon, FinishedAt: noon, Stdout: make([]byte, 10), Stderr: make([]byte, 10)}
	}
	for _, c := range []broken[Settlement]{
		{"", func(*Settlement) {}},
		{"exit", func(s *Settlement) { s.TimedOut = true }},
		{"exit", func(s *Settlement) { s.TimedOut, s.Exit = true, Signaled("SIGKILL") }},
		{"", func(s *Settlement) { s.TimedOut, s.Exit = true, Exit{} }},
		{"exit", func(s *Settlement) { s.Exit = Exit{} }},
		{"exit", func(s *Settlement) { s.Exit.Signal = "SIGKILL" }},
		{"started_at", func(s *Settlement) { s.StartedAt = "" }},
		{"finished_at", func(s *Settlement) { s.FinishedAt = "x" }},
		{"finished_at", func(s *Settlement) { s.StartedAt = one }},
		{"", func(s *Settlement) { s.FinishedAt = one }},
		{"stdout", func(s *Settlement) { s.Stdout = make([]byte, 11) }},
		{"stderr", func(s *Settlement) { s.Stderr = make([]byte, 11) }},
		{"", func(s *Settlement) { s.Stdout, s.Stderr = nil, nil }},
	} {
		s := good()
		c.how(&s)
		named(t, s.Validate(10), c.field)
	}
}

package sandbox

import (
	"strconv"
	"strings"
)

// Command is one bounded command, run to completion.
// Source: contract "The operations", row execute; "Bounds".
type Command struct {
	Executable       string            `json:"executable"` // a guest path, or a name looked up in PATH
	Arguments        []string          `json:"arguments"`  // without the executable itself
	WorkingDirectory string            `json:"working_directory"`
	Environment      map[string]string `json:"environment"`
	Stdin            []byte            `json:"-"` // whole standard input, at most 16 MiB; EOF follows
	TimeoutSeconds   int64             `json:"timeout_seconds"`
	OutputLimitBytes int64             `json:"output_limit_bytes"` // for each stream
}

// Validate checks every bound. Environment values appear in no error.
func (c Command) Validate() error {
	if len(c.Stdin) > MaxFileBytes {
		return invalid("stdin", "at most "+strconv.Itoa(MaxFileBytes)+" bytes", strconv.Itoa(len(c.Stdin))+" bytes")
	}
	return first(
		checkProgram(c.Executable, c.Arguments, c.WorkingDirectory, c.Environment),
		checkInteger("timeout_seconds", c.TimeoutSeconds, 1, MaxInteger),
		checkInteger("output_limit_bytes", c.OutputLimitBytes, 1, MaxOutputBytes),
	)
}

// checkProgram checks what a command and a process have in common.
func checkProgram(executable string, arguments []string, directory string, environment map[string]string) error {
	if len(executable) == 0 || len(executable) > MaxPathBytes || strings.IndexByte(executable, 0) >= 0 {
		return invalid("executable", "1 to 4096 bytes without NUL", executable)
	}
	if len(arguments) > MaxArguments {
		return invalid("arguments", "at most "+strconv.Itoa(MaxArguments), strconv.Itoa(len(arguments)))
	}
	for i, a := range arguments {
		if len(a) > MaxArgumentBytes {
			return invalid(at("arguments", i), "at most "+strconv.Itoa(MaxArgumentBytes)+" bytes", strconv.Itoa(len(a))+" bytes")
		}
		if strings.IndexByte(a, 0) >= 0 {
			return invalid(at("arguments", i), "no NUL", "a NUL")
		}
	}
	if directory != "/" {
		if err := CheckPath("working_directory", directory); err != nil {
			return err
		}
	}
	if len(environment) > MaxEnvironment {
		return invalid("environment", "at most "+strconv.Itoa(MaxEnvironment)+" entries", strconv.Itoa(len(environment)))
	}
	for key, value := range environment {
		if err := CheckEnvironment(key, value); err != nil {
			return err
		}
	}
	return nil
}

// CheckEnvironment checks one entry. The value never appears in the error.
// Source: contract "Bounds", row Environment keys.
func CheckEnvironment(key, value string) error {
	ok := len(key) >= 1 && len(key) <= MaxNameBytes && (key[0] < '0' || key[0] > '9')
	for i := 0; ok && i < len(key); i++ {
		c := key[i]
		ok = c == '_' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
	}
	if !ok {
		return invalid("environment", "keys of the form ^[A-Za-z_][A-Za-z0-9_]*$", key)
	}
	if len(value) > MaxEnvironmentBytes || strings.IndexByte(value, 0) >= 0 {
		return invalid("environment."+key, "at most 131072 bytes without NUL", "a value that is not")
	}
	return nil
}

// Exit is how a process ended: an exit code xor a signal name.
// Source: contract "openProcess".
type Exit struct {
	ExitCode *int64 `json:"exit_code,omitzero"` // 0 to 255
	Signal   string `json:"signal,omitzero"`    // ^SIG[A-Z0-9+]{1,12}$
}

// Exited is the exit by code.
func Exited(code int64) Exit { return Exit{ExitCode: &code} }

// Signaled is the exit by signal.
func Signaled(name string) Exit { return Exit{Signal: name} }

// Validate checks that there is one cause and that it is well formed.
func (e Exit) Validate() error {
	switch {
	case e.ExitCode != nil && e.Signal != "":
		return invalid("exit", "one cause", "an exit code and a signal")
	case e.ExitCode != nil:
		return checkInteger("exit_code", *e.ExitCode, 0, 255)
	case e.Signal == "":
		return invalid("exit", "one cause", "none")
	}
	return checkSignalName(e.Signal)
}

func checkSignalName(name string) error {
	rest, ok := strings.CutPrefix(name, "SIG")
	ok = ok && len(rest) >= 1 && len(rest) <= 12
	for i := 0; ok && i < len(rest); i++ {
		c := rest[i]
		ok = c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+'
	}
	if !ok {
		return invalid("signal", "^SIG[A-Z0-9+]{1,12}$", name)
	}
	return nil
}

// Settlement is how one command ended. Exactly one of Exit's two causes and
// TimedOut holds. On a timeout Stdout and Stderr are what was written so far.
// Source: contract "The operations", row execute.
type Settlement struct {
	Exit       Exit
	TimedOut   bool
	StartedAt  Timestamp
	FinishedAt Timestamp
	Stdout     []byte
	Stderr     []byte
}

// Validate checks the causes, the interval and the streams against limit
// bytes each.
func (s Settlement) Validate(limit int64) error {
	if s.TimedOut {
		if s.Exit.ExitCode != nil || s.Exit.Signal != "" {
			return invalid("exit", "one cause", "a timeout and an exit")
		}
	} else if err := s.Exit.Validate(); err != nil {
		return err
	}
	if err := first(checkTimestamp("started_at", s.StartedAt), checkTimestamp("finished_at", s.FinishedAt)); err != nil {
		return err
	}
	if s.FinishedAt.Before(s.StartedAt) {
		return invalid("finished_at", "at or after started_at "+string(s.StartedAt), string(s.FinishedAt))
	}
	return first(
		checkInteger("stdout", int64(len(s.Stdout)), 0, limit),
		checkInteger("stderr", int64(len(s.Stderr)), 0, limit),
	)
}

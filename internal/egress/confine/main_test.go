package confine

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// order is what a child of the test binary does: it confines itself without some
// of the steps, says how that went, waits for a line if it is to, and acts.
type order struct {
	Needs   Needs
	Without []string
	Do      string
	With    string // the action's argument
	Waits   bool
}

// outcome is what it says, twice: after it was confined, and after it acted.
type outcome struct {
	Step  string // of the *Error
	Error string
	Errno syscall.Errno
}

const childName = "confined"

func TestMain(m *testing.M) {
	switch os.Args[0] {
	case childName:
		child()
	case attackerName:
		attack()
	}
	os.Exit(m.Run())
}

func child() {
	var o order
	if err := json.Unmarshal([]byte(os.Args[1]), &o); err != nil {
		panic(err)
	}
	do, ok := actions[o.Do]
	if !ok {
		panic(o.Do)
	}
	say := func(err error) {
		var said outcome
		if err != nil {
			said.Error = err.Error()
			if e, ok := errors.AsType[*Error](err); ok {
				said.Step = e.Step
			}
			if e, ok := errors.AsType[syscall.Errno](err); ok {
				said.Errno = e
			}
		}
		if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
			panic(err)
		}
	}
	before(o.Do)
	err := perform(o.Needs, slices.DeleteFunc(slices.Clone(steps), func(s step) bool { return slices.Contains(o.Without, s.name) }))
	say(err)
	if err != nil {
		os.Exit(1)
	}
	if o.Waits {
		_, _ = os.Stdin.Read(make([]byte, 1))
	}
	say(do(o.With))
	os.Exit(0)
}

// running is a child that was confined and waits.
type running struct {
	*exec.Cmd
	said     *json.Decoder
	stdin    io.Closer
	stderr   *bytes.Buffer
	Confined outcome
}

// begin starts a child. It is ended with the test.
func begin(t *testing.T, o order, change func(*exec.Cmd)) *running {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: the processes under test give it up")
	}
	if o.Needs.Files == 0 {
		o.Needs.Files = 128
	}
	if o.Needs.Descriptors == nil {
		o.Needs.Descriptors = []int{0, 1, 2}
	}
	if o.Needs.UID == 0 && o.Needs.GID == 0 {
		o.Needs.UID, o.Needs.GID = testUID, testUID
	}
	if o.Needs.UID < 0 {
		o.Needs.UID, o.Needs.GID = 0, 0
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{stderr: new(bytes.Buffer), Cmd: &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{childName, string(text)}, Env: []string{},
		SysProcAttr: &syscall.SysProcAttr{},
	}}
	r.Stderr = r.stderr
	stdin, err := r.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.stdin = stdin
	stdout, err := r.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r.Cmd)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.Process.Kill()
		_ = r.Wait()
	})
	r.said = json.NewDecoder(stdout)
	if err := r.said.Decode(&r.Confined); err != nil {
		_ = r.Wait()
		t.Fatalf("it said nothing: %v, %s", err, r.stderr)
	}
	return r
}

// act lets a child that waits go on, and answers what came of it. A child that
// died instead has no outcome.
func (r *running) act(t *testing.T) (outcome, syscall.WaitStatus) {
	t.Helper()
	r.stdin.Close()
	var acted outcome
	err := r.said.Decode(&acted)
	_ = r.Wait()
	status := r.ProcessState.Sys().(syscall.WaitStatus)
	if err != nil && status.Exited() && status.ExitStatus() == 0 {
		t.Fatalf("it said nothing: %v, %s", err, r.stderr)
	}
	return acted, status
}

// run is a whole child.
func run(t *testing.T, o order) (outcome, syscall.WaitStatus) {
	t.Helper()
	r := begin(t, o, nil)
	if r.Confined.Error != "" {
		t.Fatalf("not confined: %s", r.Confined.Error)
	}
	return r.act(t)
}

// testUID is who the children become.
const testUID = 65519

// without is all steps but those that are named.
func without(names string, more ...string) []string {
	return append(strings.Fields(names), more...)
}

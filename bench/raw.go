package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/sandbox"
)

// dispatchRaw acts as the plain runsc command where this program's own file is
// called runsc: the same pin, built the same way, so that a difference between
// the sides is not one of versions or compilers. It does so also as the gofer
// and the sentry that runsc starts from its file, or those would be the
// driver's, which are quicker up.
func dispatchRaw() {
	if filepath.Base(self()) != "runsc" {
		return
	}
	commands := map[util.SubCommand]string{}
	for _, c := range []util.SubCommand{
		new(cmd.Checkpoint), new(cmd.Create), new(cmd.Delete), new(cmd.Exec), new(cmd.Kill), new(cmd.Restore), new(cmd.Run), new(cmd.Start), new(cmd.State), new(cmd.Wait),
		new(sentrycmd.Boot), new(cmd.Gofer), new(sentrycmd.Umount),
	} {
		commands[c] = ""
	}
	cli.Run(nil, commands, nil)
	os.Exit(0)
}

// copyFile makes a program of its own at a path of its own.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// runscFlags are those of internal/provider/native/gvisor, but for the files
// that belong to one machine and for the cgroup, which the driver's helper has
// joined by itself. checkFlags proves it.
func (w *world) runscFlags() []string {
	return []string{
		"--root=" + w.stateRoot("runsc"), "--platform=systrap", "--network=none", "--overlay2=none", "--directfs=true",
		"--file-access=exclusive", "--file-access-mounts=shared", "--host-settings=ignore", "--host-uds=none",
		"--watchdog-action=log", "--ref-leak-mode=disabled", "--cpu-num-from-quota=true",
	}
}

// checkFlags compares the flags of a raw command with those of the sentry that
// the driver started: what the one was given and the other was not is an error.
func (w *world) checkFlags(id sandbox.InstanceID) error {
	raw := map[string]bool{}
	for _, f := range w.runscFlags() {
		raw[f] = true
	}
	for _, pid := range w.processes(string(id)) {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		argv := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
		if err != nil || argv[0] != "runsc-sandbox" {
			continue
		}
		for _, a := range argv[1:] {
			if !strings.HasPrefix(a, "--") {
				return nil // the subcommand: its flags are runsc's own business
			}
			name, _, _ := strings.Cut(a, "=")
			if !raw[a] && !strings.HasSuffix(name, "-fd") && name != "--panic-log" && name != "--log" && name != "--ignore-cgroups" {
				return fmt.Errorf("the driver's sentry has flag %s, the raw command does not", a)
			}
		}
	}
	return fmt.Errorf("no sentry of machine %s found", id)
}

// rawBundle writes a bundle that differs from what the driver wrote for a
// running machine in its program and its cgroup only: same root overlay, same
// binds (already mounted, which the raw side so gets for nothing), namespaces,
// limits, user and privileges.
func (w *world) rawBundle(driver string, like sandbox.InstanceID, name string, argv ...string) (string, error) {
	state := filepath.Join(w.providerDir(driver), "instances", string(like), "machine")
	config := filepath.Join(state, "bundle", "config.json")
	if driver == "runc" {
		config = filepath.Join(state, "runc", "config.json")
	}
	text, err := os.ReadFile(config)
	if err != nil {
		return "", err
	}
	var spec specs.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		return "", err
	}
	spec.Process.Args = argv
	spec.Process.Env = []string{"PATH=/bin:/usr/bin"}
	spec.Process.User = specs.User{UID: machine.WorkloadID, GID: machine.WorkloadID}
	spec.Linux.CgroupsPath = "/" + w.parent + "/" + name
	if driver == "runc" {
		spec.Hooks = nil // the hook is ours
		// runc 1.1 itself calls it behind the filter.
		spec.Linux.Seccomp.Syscalls[0].Names = append(spec.Linux.Seccomp.Syscalls[0].Names, "prlimit64")
	}
	dir := filepath.Join(w.dir, "bundle-"+name)
	if text, err = json.Marshal(spec); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644)
}

// rawRunsc and rawRunc are the plain commands.
func (w *world) rawRunsc(args ...string) []string {
	return append(append([]string{w.runtime}, w.runscFlags()...), args...)
}

func (w *world) rawRunc(args ...string) []string {
	return append([]string{"runc", "--root", w.stateRoot("runc")}, args...)
}

// commandBound ends a raw command that hangs.
const commandBound = time.Minute

// sh runs a program to its end, which must be exit code 0.
func sh(ctx context.Context, argv ...string) error { return shInto(ctx, nil, "", argv...) }

func shInto(ctx context.Context, stdout io.Writer, dir string, argv ...string) error {
	ctx, cancel := context.WithTimeout(ctx, commandBound)
	defer cancel()
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var said bytes.Buffer
	c.Dir, c.Stdout, c.Stderr = dir, stdout, &said
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "HOME=/nonexistent"}
	c.WaitDelay = time.Second
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", shellLine(argv), err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

// shQuiet is sh with nothing but the null device for the program's streams:
// what a detached container inherits keeps no reader waiting.
func shQuiet(ctx context.Context, argv ...string) error {
	ctx, cancel := context.WithTimeout(ctx, commandBound)
	defer cancel()
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Env = []string{"PATH=" + os.Getenv("PATH")}
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w", shellLine(argv), err)
	}
	return nil
}

package runner

import (
	"io"
	"time"

	"github.com/checkfu/checkfu/internal/mount"
	"github.com/checkfu/checkfu/sandbox"
)

// RepoPath is where the repository of a Run is mounted.
// Source: design "Where the documents are silent", 9.
const RepoPath = "/workspace/repo"

// DiskField is the field that a sandbox.Invalid names when the mounts do not
// fit the disk limit.
const DiskField = "resource_limits.disk_bytes"

// Margin is how much longer than its command a machine may live, for staging
// before it and collecting after it.
const Margin = 15 * time.Minute

// Spec says what to run, on what, and where the results go.
type Spec struct {
	RunID     string // "" mints one, as NewRunID does
	SessionID string // "" mints one

	Repo   *Repo // nil for none; mounted read-write at RepoPath
	Mounts []DirMount

	Image     string            // NAME@sha256:DIGEST
	Packages  []sandbox.Package // that the machine has besides, in the order of a profile; nil is none
	Network   sandbox.NetworkPolicy
	Resources sandbox.Resources // MaxDurationSeconds is derived from Timeout
	Timeout   time.Duration     // of the command, from its start

	// Keep is how long the snapshot lives that what is in the machine is kept in when
	// it ends in order; 0 keeps nothing of it.
	Keep time.Duration
	// Kept is told of that snapshot, and of the machine that it was taken of, before
	// anybody else is. Where it fails the snapshot is destroyed, and so the Run fails.
	Kept func(sandbox.Instance, sandbox.Snapshot) error

	Command          []string // the program and its arguments, never a shell line
	WorkingDirectory string   // "" is RepoPath where there is a Repo, else the home
	Environment      map[string]string

	Input  io.Reader // nil is end of file at once
	Output io.Writer
	Errors io.Writer

	// Stop carries the interruptions of a person: the first is passed on to
	// the command, the second ends the machine. nil is never.
	Stop <-chan sandbox.ControlSignal
	// OutDir takes the files of the output tree; "" leaves them behind. It is
	// made when there is something to put into it.
	OutDir string
	// Patch takes the changes of Repo; nothing is written if there are none.
	// nil makes none.
	Patch io.Writer
	// Base takes what the files of the patch were when they were staged, for a merge
	// later (mount.Merge); nil is nobody. It may never fail.
	Base io.Writer
	// TempDir keeps what staging needs; "" is the system's.
	TempDir string
	// Progress is told of long work, by one goroutine at a time; nil is nobody.
	Progress func(phase Phase, done, total int64)
}

// Repo is a Git repository to work on.
type Repo struct {
	Dir       string // top of a working tree, or a git directory
	Revision  string // "" is the working tree as it is
	Committed bool   // HEAD and not the working tree
	Untracked bool   // untracked files too; never ignored ones
}

// DirMount is one plain directory to mount.
type DirMount struct {
	Source string // host directory
	Path   string // guest path
	Access sandbox.Access
}

// declared returns the mounts in the order in which they are planned: the
// repository first.
func (s Spec) declared() []sandbox.Mount {
	var mounts []sandbox.Mount
	if s.Repo != nil {
		mounts = append(mounts, sandbox.Mount{MountPath: RepoPath, Access: sandbox.AccessReadWrite, Kind: sandbox.MountGit})
	}
	for _, m := range s.Mounts {
		mounts = append(mounts, sandbox.Mount{MountPath: m.Path, Access: m.Access, Kind: sandbox.MountProject})
	}
	return mounts
}

func (s Spec) directory() string {
	switch {
	case s.WorkingDirectory != "":
		return s.WorkingDirectory
	case s.Repo != nil:
		return RepoPath
	}
	return sandbox.HomePath
}

// profile is the machine that the Spec asks for. Where nothing of the Run is to
// outlive it, the retention is zero.
func (s Spec) profile() sandbox.Profile {
	limits := s.Resources
	limits.MaxDurationSeconds = wholeSeconds(s.Timeout)
	retention := sandbox.RetentionEphemeralZDR
	if s.Keep > 0 {
		retention = sandbox.RetentionDurable
	}
	return sandbox.Profile{
		ProfileID: "checkfu-run", ProfileVersion: 1, Tier: sandbox.TierContainer, BaseImage: s.Image,
		Packages: append([]sandbox.Package{}, s.Packages...), NetworkPolicy: s.Network, ResourceLimits: limits,
		RetentionMode: retention,
	}
}

// wholeSeconds is d, a part of a second counted whole.
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func (s Spec) request() sandbox.ProcessRequest {
	env := s.Environment
	if env == nil {
		env = map[string]string{}
	}
	return sandbox.ProcessRequest{
		Executable: s.Command[0], Arguments: append([]string{}, s.Command[1:]...),
		WorkingDirectory: s.directory(), Environment: env,
	}
}

// validate checks what no later phase checks before the provider is called.
func (s Spec) validate() error {
	switch {
	case len(s.Command) == 0:
		return &sandbox.Invalid{Field: "command", Expected: "a program to run", Got: ""}
	case s.Timeout < time.Millisecond || s.Timeout > maxTimeout:
		return &sandbox.Invalid{Field: "timeout", Expected: "1ms to " + maxTimeout.String(), Got: s.Timeout.String()}
	case s.Output == nil || s.Errors == nil:
		return &sandbox.Invalid{Field: "output", Expected: "two writers", Got: "none"}
	}
	if err := s.request().Validate(); err != nil {
		return err
	}
	return sandbox.ValidateMounts(s.declared())
}

// maxTimeout is what no expiry in the years of a Timestamp can overflow with.
const maxTimeout = 30 * 24 * time.Hour

// planned is one mount with the bytes that go into it.
type planned struct {
	mount sandbox.Mount
	plan  *mount.Plan
}

package gvisor

import (
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/cpuid"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/checkfu/checkfu/internal/guest"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

var (
	_ machine.Restorer     = (*Driver)(nil)
	_ machine.Checkpointer = (*gvisorMachine)(nil)
)

// keepNursery gives init of a live machine what its nursery needs, which init has given
// up when the machine is ready. A restored sentry ends whatever descends from an exec of
// the host, so what is to go on has to descend from init.
func keepNursery(s machine.Spec, p *specs.Process) {
	if !s.Live {
		return
	}
	p.Env = append(p.Env, guest.NurseryEnv+"="+strconv.Itoa(machine.WorkloadID))
	caps := []string{"CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"}
	p.Capabilities = &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps}
}

// Checkpoint implements machine.Checkpointer. Only what init's nursery started goes on
// when it is restored.
//
// The sentry has the files open until it has answered; where the caller gives up before,
// it writes on into files that the caller has removed.
func (m *gvisorMachine) Checkpoint(ctx context.Context, dir string) error {
	switch {
	case !m.spec.Live:
		return &machine.CheckpointError{Cause: machine.CauseNotLive}
	case m.spec.Netns != "" || m.spec.Twin.HostNetwork:
		return &machine.CheckpointError{Cause: machine.CauseNetwork}
	case m.commands.Load() > 0:
		return &machine.CheckpointError{Cause: machine.CauseCommand}
	}
	if err := m.Alive(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	args := &control.SaveOpts{
		Metadata:      statefile.CompressionLevelNone.ToMetadata(),
		HavePagesFile: true,
		Resume:        true, // else it ends, whatever comes of it
	}
	var files []*os.File
	closeAll := func() error {
		var err error
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
		return err
	}
	// In the order that the sentry expects them in.
	for _, name := range []string{checkpointfiles.StateFileName, checkpointfiles.PagesMetadataFileName, checkpointfiles.PagesFileName} {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return errors.Join(err, closeAll())
		}
		files = append(files, f)
	}
	args.FilePayload = urpc.FilePayload{Files: files}
	err := within(ctx, func() error {
		return errors.Join(m.call(boot.ContMgrCheckpoint, args, nil), closeAll())
	})
	if remote, ok := errors.AsType[urpc.RemoteError](err); ok {
		if strings.Contains(remote.Message, unix.ENOSPC.Error()) { // text is all that comes back
			return fmt.Errorf("checkpoint: %w: %s", unix.ENOSPC, firstLine(remote.Message))
		}
		return &machine.CheckpointError{Cause: machine.CauseState, Err: errors.New(firstLine(remote.Message))}
	}
	if err != nil && ctx.Err() == nil {
		if ended := m.endedWithin(ctx, endBound); m.Alive() != nil {
			return ended
		}
	}
	return err
}

// firstLine is what a sentry says without the stacks of its goroutines, which a cause
// drowns in.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line[:min(len(line), 300)]
}

// Restore implements machine.Restorer.
//
// Errors: those of Start. Blocks: as Start, and longer by what dir holds.
func (d *Driver) Restore(ctx context.Context, s machine.Spec, dir string) (machine.Machine, error) {
	if !s.Live {
		return nil, &SpecError{"Live", "true: a checkpoint is a live machine's", "false"}
	}
	if !filepath.IsAbs(dir) {
		return nil, &SpecError{"checkpoint", "an absolute path", dir}
	}
	return d.begin(ctx, s, dir)
}

// Identity implements machine.Restorer. gVisor's own version would not do: linked as a
// library it knows none, and it checks the processor only as far as it uses it.
func (d *Driver) Identity() (machine.Identity, error) { return identity() }

var identity = sync.OnceValues(func() (machine.Identity, error) {
	build, err := buildID()
	if err != nil {
		return machine.Identity{}, err
	}
	cpuid.Initialize()
	features := sha256.Sum256([]byte(cpuid.HostFeatureSet().FlagString()))
	return machine.Identity{
		Runtime:  "gvisor " + moduleVersion("gvisor.dev/gvisor"),
		Build:    build,
		Platform: "systrap " + runtime.GOARCH,
		CPU:      "sha256:" + hex.EncodeToString(features[:]),
	}, nil
})

func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return "unknown"
}

// buildID is the identifier that the Go toolchain wrote into this very binary: it
// follows from all that it was built from.
func buildID() (string, error) {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return "", err
	}
	defer f.Close()
	section := f.Section(".note.go.buildid")
	if section == nil {
		return "", errors.New("this binary has no build id, so a checkpoint cannot be bound to it")
	}
	note, err := section.Data()
	if err != nil {
		return "", err
	}
	// Two sizes and a type of 4 bytes, the name "Go\0\0", the id.
	const head = 16
	if len(note) <= head {
		return "", fmt.Errorf("build id: a note of %d bytes", len(note))
	}
	id := sha256.Sum256(note[head:])
	return "sha256:" + hex.EncodeToString(id[:]), nil
}

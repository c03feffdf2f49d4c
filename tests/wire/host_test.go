package wire

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
)

// host is a provider whose instances are directories and whose commands are
// ordinary processes: what it made outlives the process that serves it, as an
// instance of a real provider does, and what it started does not, as nothing
// that is held by a pipe does. It confines nothing.
type host struct {
	sandbox.Provider // what it has not, as the memory provider would refuse it
	dir              string

	mu   sync.Mutex
	live map[sandbox.InstanceID]*hostProcess
}

// marker is in the environment of everything that a host starts.
const marker = "CHECKFU_TEST_HOST"

func newHost(dir string) (*host, error) {
	err := os.MkdirAll(filepath.Join(dir, "instances"), 0o700)
	return &host{Provider: memory.New(memory.Options{}), dir: dir, live: map[sandbox.InstanceID]*hostProcess{}}, err
}

func (h *host) Capabilities(ctx context.Context) (sandbox.Capabilities, error) {
	c, err := h.Provider.Capabilities(ctx)
	c.Snapshots, c.SnapshotClone, c.ActiveMountWrite, c.ListDir, c.SymlinkStaging = false, false, false, false, false
	c.RetentionModes = []sandbox.RetentionMode{sandbox.RetentionEphemeralZDR}
	return c, err
}

func (h *host) Optional() sandbox.Optional { return sandbox.Optional{OpenProcess: h} }

func (h *host) path(id sandbox.InstanceID) string {
	return filepath.Join(h.dir, "instances", filepath.Base(string(id)))
}

// note writes down an effect before it happens.
func (h *host) note(what string) error {
	f, err := os.OpenFile(filepath.Join(h.dir, "effects"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(what + "\n")
	return errors.Join(err, f.Close())
}

func (h *host) save(path string, i sandbox.Instance) error {
	record, err := json.Marshal(i)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+"/new", record, 0o600); err != nil {
		return err
	}
	return os.Rename(path+"/new", path+"/record")
}

func (h *host) find(op sandbox.Operation, id sandbox.InstanceID) (i sandbox.Instance, err error) {
	record, err := os.ReadFile(h.path(id) + "/record")
	if err != nil {
		return i, sandbox.NoInstance(op, id)
	}
	return i, json.Unmarshal(record, &i)
}

func (h *host) Provision(_ context.Context, r sandbox.ProvisionRequest) (none sandbox.Handoff[sandbox.Instance], err error) {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	id := sandbox.InstanceID("host-" + hex.EncodeToString(b[:]))
	if err := h.note("provision " + r.RunID); err != nil {
		return none, err
	}
	sum := sha256.Sum256([]byte(r.Profile.ImageIdentity()))
	i := sandbox.InstanceOf(r, id, sandbox.StateProvisioning, sandbox.Digest("sha256:"+hex.EncodeToString(sum[:])))
	hidden := filepath.Join(h.dir, "instances", "."+string(id))
	if err := errors.Join(os.MkdirAll(hidden+"/files", 0o700), h.save(hidden, i), os.Rename(hidden, h.path(id))); err != nil {
		return none, err
	}
	return sandbox.Handoff[sandbox.Instance]{Value: i, Rollback: func(ctx context.Context) error { return h.Destroy(ctx, id) }}, nil
}

func (h *host) Activate(_ context.Context, id sandbox.InstanceID) (none sandbox.Handoff[sandbox.Instance], err error) {
	i, err := h.find(sandbox.OpActivate, id)
	if err != nil {
		return none, err
	}
	if i.State != sandbox.StateProvisioning {
		return none, sandbox.Conflict(sandbox.OpActivate, string(sandbox.StateProvisioning), string(i.State))
	}
	i.State = sandbox.StateActive
	if err := h.save(h.path(id), i); err != nil {
		return none, err
	}
	return sandbox.Handoff[sandbox.Instance]{Value: i, Rollback: func(ctx context.Context) error { return h.Destroy(ctx, id) }}, nil
}

func (h *host) WriteFile(_ context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
	if _, err := h.find(sandbox.OpWriteFile, id); err != nil {
		return err
	}
	path := filepath.Join(h.path(id), "files", filepath.Base(w.Path))
	return errors.Join(os.WriteFile(path+".new", w.Content, 0o600), os.Rename(path+".new", path))
}

func (h *host) ReadFile(_ context.Context, id sandbox.InstanceID, r sandbox.FileRead) ([]byte, error) {
	if _, err := h.find(sandbox.OpReadFile, id); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(h.path(id), "files", filepath.Base(r.Path)))
	if err != nil {
		return nil, sandbox.Failed(sandbox.OpReadFile, sandbox.ReasonNotFound, nil)
	}
	return data, nil
}

// start starts a command that dies with this process: on a thread that stays,
// because it is the thread whose end counts.
func (h *host) start(id sandbox.InstanceID, argv []string, in *os.File, out, errs *os.File) (*exec.Cmd, <-chan error, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = filepath.Join(h.path(id), "files")
	cmd.Env = []string{"PATH=/usr/bin:/bin", marker + "=" + h.dir}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	return cmd, ended, <-started
}

func exitOf(cmd *exec.Cmd) sandbox.Exit {
	if s := cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() {
		if s.Signal() == syscall.SIGKILL {
			return sandbox.Exit{Signal: "SIGKILL"}
		}
		return sandbox.Exit{Signal: "SIGTERM"}
	}
	return sandbox.Exited(int64(cmd.ProcessState.ExitCode()))
}

func (h *host) Execute(_ context.Context, id sandbox.InstanceID, c sandbox.Command) (s sandbox.Settlement, err error) {
	if _, err := h.find(sandbox.OpExecute, id); err != nil {
		return s, err
	}
	out, err := os.CreateTemp(h.dir, "out")
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, out.Close(), os.Remove(out.Name())) }()
	s.StartedAt = sandbox.At(time.Now())
	cmd, ended, err := h.start(id, append([]string{c.Executable}, c.Arguments...), nil, out, nil)
	if err != nil {
		return s, err
	}
	<-ended
	s.FinishedAt, s.Exit = sandbox.At(time.Now()), exitOf(cmd)
	s.Stdout, err = os.ReadFile(out.Name())
	return s, err
}

func (h *host) Destroy(ctx context.Context, id sandbox.InstanceID) error {
	h.mu.Lock()
	p := h.live[id]
	h.mu.Unlock()
	if p != nil {
		if err := p.Destroy(ctx); err != nil {
			return err
		}
	}
	gone := filepath.Join(h.dir, "instances", ".gone-"+filepath.Base(string(id)))
	if err := os.Rename(h.path(id), gone); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.RemoveAll(gone)
}

func (h *host) Cleanup(ctx context.Context, r sandbox.CleanupRequest) (swept sandbox.Swept, err error) {
	swept = sandbox.Swept{InstanceIDs: []sandbox.InstanceID{}, SnapshotIDs: []sandbox.SnapshotID{}}
	all, err := os.ReadDir(filepath.Join(h.dir, "instances"))
	for _, e := range all {
		if strings.HasPrefix(e.Name(), ".") { // half made, or half gone
			err = errors.Join(err, os.RemoveAll(filepath.Join(h.dir, "instances", e.Name())))
			continue
		}
		id := sandbox.InstanceID(e.Name())
		if i, ferr := h.find(sandbox.OpCleanup, id); ferr == nil && i.ExpiresAt < r.OrphanedBefore {
			err = errors.Join(err, h.Destroy(ctx, id))
			swept.InstanceIDs = append(swept.InstanceIDs, id)
		}
	}
	return swept, err
}

// hostProcess is one live process of a host.
type hostProcess struct {
	cmd       *exec.Cmd
	in        io.WriteCloser
	out, errs *os.File
	evidence  sandbox.Evidence
	done      chan struct{}
}

func (h *host) OpenProcess(_ context.Context, id sandbox.InstanceID, name string, r sandbox.ProcessRequest) (_ sandbox.Process, err error) {
	i, err := h.find(sandbox.OpOpenProcess, id)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.live[id] != nil {
		return nil, sandbox.Conflict(sandbox.OpOpenProcess, "no live process", sandbox.ActualProcessAlreadyOpen)
	}
	if err := h.note("open " + name); err != nil {
		return nil, err
	}
	var pipes [6]*os.File
	for n := 0; n < len(pipes); n += 2 {
		if pipes[n], pipes[n+1], err = os.Pipe(); err != nil {
			return nil, err
		}
	}
	p := &hostProcess{in: pipes[1], out: pipes[2], errs: pipes[4], done: make(chan struct{})}
	cmd, ended, err := h.start(id, append([]string{r.Executable}, r.Arguments...), pipes[0], pipes[3], pipes[5])
	err = errors.Join(err, pipes[0].Close(), pipes[3].Close(), pipes[5].Close())
	if err != nil {
		return nil, err
	}
	c, err := h.Capabilities(context.Background())
	now := sandbox.At(time.Now())
	p.cmd, p.evidence = cmd, sandbox.EvidenceOf(i, name, c.Enforcement, now, now)
	h.live[id] = p
	go func() {
		<-ended
		h.mu.Lock()
		delete(h.live, id)
		h.mu.Unlock()
		close(p.done)
	}()
	return p, err
}

func (p *hostProcess) Input() io.WriteCloser      { return p.in }
func (p *hostProcess) Output() io.Reader          { return p.out }
func (p *hostProcess) Error() io.Reader           { return p.errs }
func (p *hostProcess) Evidence() sandbox.Evidence { return p.evidence }

func (p *hostProcess) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-p.done:
		return exitOf(p.cmd), nil
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

func (p *hostProcess) Signal(context.Context, sandbox.ControlSignal) error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // after its end it does nothing
	return nil
}

func (p *hostProcess) Destroy(ctx context.Context) error {
	_ = p.cmd.Process.Kill()
	_, err := p.Wait(ctx)
	return err
}

// left names every process that a host over dir started and that still runs.
func left(dir string) (pids []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range all {
		env, err := os.ReadFile(file) // what ends meanwhile is gone
		if err == nil && bytes.Contains(env, []byte(fmt.Sprint(marker, "=", dir, "\x00"))) {
			pids = append(pids, file)
		}
	}
	return pids
}

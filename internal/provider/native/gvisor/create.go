package gvisor

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
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// Descriptors that the helper is given beyond its standard three.
const (
	createOwnerFD  = 3 // the read end of the owner's pipe, passed on to init
	createResultFD = 4 // where the helper writes its createResult
	createReadyFD  = 5 // the write end of init's ready pipe, passed on to init; where init says that it is ready
)

// createResult is what the helper found out, as JSON on createResultFD.
type createResult struct {
	Sandbox int    `json:"sandbox"` // host pid of the sentry
	Gofer   int    `json:"gofer"`   // host pid of the gofer
	Socket  string `json:"socket"`  // path of the control socket
	Error   string `json:"error,omitempty"`
}

// createRequest is all that the helper needs, as JSON in its argv: a crash
// sweep finds the helper by the root and the id that stand there.
type createRequest struct {
	Flags  map[string]string `json:"flags"`
	ID     string            `json:"id"`
	Bundle string            `json:"bundle"`
	Ready  bool              `json:"ready,omitempty"` // createReadyFD is there
	Image  string            `json:"image,omitempty"` // a checkpoint to restore; "" starts init
	// Rootless says that there is no cgroup to be had.
	Rootless bool `json:"rootless,omitempty"`
}

// maxResult bounds what is read of a helper.
const maxResult = 64 << 10

// start runs the helper and takes the machine over. On error the caller sweeps.
//
// A helper, because on cgroup v1 the process that creates a machine has to be in
// its cgroup, and because runsc code may exit or panic: neither may happen to
// the provider.
//
// image is the directory of a checkpoint that the machine goes on from, or "".
func (d *Driver) start(ctx context.Context, s machine.Spec, image string) (*gvisorMachine, error) {
	if err := os.MkdirAll(d.root, 0o711); err != nil {
		return nil, err
	}
	spec, err := json.Marshal(d.bundle(s))
	if err != nil {
		return nil, err
	}
	bundle := filepath.Join(s.StateDir, "bundle")
	if err := os.MkdirAll(bundle, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), spec, 0o600); err != nil {
		return nil, err
	}
	request, err := json.Marshal(createRequest{Flags: d.flags(s), ID: s.ID, Bundle: bundle, Ready: saysReady(s), Image: image, Rootless: d.rootless})
	if err != nil {
		return nil, err
	}

	ownerRead, ownerWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ownerRead.Close()
	resultRead, resultWrite, err := os.Pipe()
	if err != nil {
		ownerWrite.Close()
		return nil, err
	}
	defer resultRead.Close()

	ready, readyWrite, err := readyPipe(s)
	if err != nil {
		ownerWrite.Close()
		resultWrite.Close()
		return nil, err
	}
	defer ready.Close()

	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{createName, string(request)}
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.ExtraFiles = []*os.File{ownerRead, resultWrite}
	if readyWrite != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, readyWrite)
	}
	// The helper dies with the provider, also between fork and exec, where its
	// command line does not yet show a sweep whose it is. The signal follows
	// the thread that forked, so the thread has to stay.
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	var said bytes.Buffer
	cmd.Stderr = &tail{w: &said, left: maxResult}
	// What outlives the helper holds no pipe of ours; if something did, its
	// output must not keep us waiting.
	cmd.WaitDelay = time.Second
	started, gone := make(chan error, 1), make(chan struct{})
	var waitErr error // valid after gone
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(gone)
		err := cmd.Start()
		started <- err
		if err == nil {
			waitErr = cmd.Wait()
		}
	}()
	err = <-started
	resultWrite.Close()
	readyWrite.Close()
	if err != nil {
		ownerWrite.Close()
		return nil, fmt.Errorf("create sandbox: %w", err)
	}

	// With its answer the helper is done. That it is gone, too, takes some
	// milliseconds more, for which only an end of the machine has to wait.
	var result createResult
	readErr := json.NewDecoder(io.LimitReader(resultRead, maxResult)).Decode(&result)
	if readErr != nil || result.Error != "" || result.Sandbox <= 0 {
		<-gone
		ownerWrite.Close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("create sandbox: helper: %s%s%s (%v, %v)", result.Error, bytes.TrimSpace(said.Bytes()), lastWords(errorLog(s)), waitErr, readErr)
	}
	m, err := d.adopt(s, result, ownerWrite, helper{cmd.Process.Pid, gone})
	if err != nil {
		<-gone
		ownerWrite.Close()
		return nil, err
	}
	if ready != nil && image == "" { // of a restored one it was said before
		err = m.awaitReady(ctx, ready)
	}
	if err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepBound)
		defer cancel()
		return nil, errors.Join(err, m.Destroy(clean))
	}
	return m, nil
}

// helper is the child that created a machine and is about to exit.
type helper struct {
	pid  int           // names nothing else until gone
	gone chan struct{} // closed once it is reaped, and the machine's processes are our children
}

func (h helper) exiting() bool {
	select {
	case <-h.gone:
		return false
	default:
		return true
	}
}

func errorLog(s machine.Spec) string { return filepath.Join(s.StateDir, "runsc.log") }

// lastWords are the reasons that sentry and gofer left in the error log: the
// helper sees no more of their failure than that a pipe has ended.
func lastWords(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	var words strings.Builder
	for lines := json.NewDecoder(io.LimitReader(f, maxResult)); ; {
		var line struct {
			Message string `json:"msg"`
		}
		if lines.Decode(&line) != nil {
			return words.String()
		}
		words.WriteString(": " + line.Message)
	}
}

// createMain is the helper. It exits with 0 once init runs.
func createMain() {
	silence()
	answer := os.NewFile(createResultFD, "result")
	result, err := create(os.Args)
	if err != nil {
		result.Error = err.Error()
	}
	// The parent sees a torn answer as a failure.
	if err := json.NewEncoder(answer).Encode(result); err != nil || result.Error != "" {
		os.Exit(1)
	}
	os.Exit(0)
}

func create(args []string) (createResult, error) {
	var request createRequest
	if len(args) != 2 {
		return createResult{}, fmt.Errorf("expected one argument, got %d", len(args)-1)
	}
	if err := json.Unmarshal([]byte(args[1]), &request); err != nil {
		return createResult{}, err
	}
	conf, err := newConfig(request.Flags)
	if err != nil {
		return createResult{}, err
	}
	spec, err := specutils.ReadSpec(request.Bundle, conf)
	if err != nil {
		return createResult{}, err
	}
	// runsc gives its own standard files to init. Ours are /dev/null but for
	// standard error, which is a pipe of the provider.
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return createResult{}, err
	}
	os.Stdin, os.Stdout, os.Stderr = null, null, null
	if request.Rootless {
		if err := expendable(); err != nil {
			return createResult{}, err
		}
		conf.IgnoreCgroups = true
	} else if !unified() {
		if err := join(spec); err != nil {
			return createResult{}, err
		}
		conf.IgnoreCgroups = true
	}

	files := map[int]*os.File{ownerFD: os.NewFile(createOwnerFD, "owner")}
	if request.Ready {
		files[readyFD] = os.NewFile(createReadyFD, "ready")
	}
	c, err := container.New(conf, container.Args{
		ID:        request.ID,
		Spec:      spec,
		BundleDir: request.Bundle,
		PassFiles: files,
	})
	if err != nil {
		return createResult{}, fmt.Errorf("create: %w", err)
	}
	if request.Image == "" {
		err = c.Start(conf)
	} else {
		err = c.Restore(conf, request.Image, false, false, nil)
	}
	if err != nil {
		err = fmt.Errorf("start: %w", err)
		_ = c.Destroy() // the provider sweeps again
		return createResult{}, err
	}
	return createResult{
		Sandbox: c.Sandbox.Getpid(),
		Gofer:   c.GoferPid.Load(),
		Socket:  c.Sandbox.GetControlSocketPath(),
	}, nil
}

// tail keeps the first left bytes and swallows the rest.
type tail struct {
	w    io.Writer
	left int
}

func (t *tail) Write(p []byte) (int, error) {
	n := min(len(p), t.left)
	t.left -= n
	if _, err := t.w.Write(p[:n]); err != nil {
		return 0, err
	}
	return len(p), nil
}

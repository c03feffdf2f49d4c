package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/image/imagetest"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/client"
)

// TestSoak: one server has lives of every kind in it, several at a time, and some
// that are killed in their middle: a machine's processes, its caller, and at the end
// of a round the server itself. Its descriptors and threads, and the host's mounts,
// cgroups, network namespaces, loop devices and files are then what they were after a
// tenth of the lives. Its memory grows by what the wire remembers of each call for a
// day, some 27 KB for a life, and by no more than is allowed for that.
// CHECKFU_TEST_SOAK says how many lives; a few are enough to see that it works; make
// soak takes 500.
func TestSoak(t *testing.T) {
	lives := 12
	if n, err := strconv.Atoi(os.Getenv("CHECKFU_TEST_SOAK")); err == nil {
		lives = n
	}
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			s := &soak{T: t, provider: provider, dir: t.TempDir()}
			s.start()
			s.dial()
			s.round(max(lives/10, 4))
			before := s.look()
			s.round(lives)
			after := s.look()
			t.Logf("%d lives, of which %d were killed\nbefore %+v\nafter  %+v", s.lives.Load(), s.killed.Load(), before, after)
			if after.kept != before.kept {
				t.Errorf("left:\nbefore %+v\nafter  %+v", before.kept, after.kept)
			}
			// The collector decides when memory goes back, beside what is remembered.
			if after.resident > before.resident*3/2+64<<20 {
				t.Errorf("memory: %d MiB, then %d", before.resident>>20, after.resident>>20)
			}
			if after.descriptors > before.descriptors+8 || after.threads > before.threads+16 {
				t.Errorf("descriptors %d, then %d; threads %d, then %d", before.descriptors, after.descriptors, before.threads, after.threads)
			}

			// Killed in the middle of a round, and begun again on what it left.
			over := make(chan struct{})
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			go func() { defer close(over); s.callers(ctx, 8) }()
			s.midway()
			s.server.Process.Kill()
			s.server.Wait()
			leave()
			s.start() // a client goes on until it has undone what it cannot know
			<-over
			s.client.Close()
			s.dial()
			s.sweep()
			if again := s.look(); again.kept != before.kept {
				t.Errorf("left by a server that was killed:\nbefore %+v\nafter  %+v", before.kept, again.kept)
			}
			s.stop()
		})
	}
}

// soak is a server and those who call it.
type soak struct {
	*testing.T
	provider, dir string
	image         string
	server        *exec.Cmd
	client        *client.Client
	lives, killed atomic.Int64

	mu   sync.Mutex
	made []string // every instance
}

func (s *soak) ids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.made)
}

// held is what may not grow.
type held struct {
	kept
	resident             int64 // bytes
	descriptors, threads int
}

// kept is what a life must not leave on the host.
type kept struct {
	mounts, cgroups, namespaces, loops, files int
}

func (s *soak) start() {
	s.Helper()
	socket := filepath.Join(s.dir, "socket")
	s.server = command(s.T, "provider", "serve", "--provider", s.provider, "--listen", "unix:"+socket)
	s.server.Env = append(s.server.Env, "CHECKFU_TOKEN=soak-0123456789abcdefghijklmnopqrstuvwxyz", "CHECKFU_STATE="+filepath.Join(s.dir, "state"))
	s.server.Stderr = os.Stderr
	if s.image == "" {
		os.Chmod(s.dir, 0o711)
		os.Chmod(filepath.Dir(s.dir), 0o711)
		s.store()
	}
	out, err := s.server.StdoutPipe()
	if err == nil {
		err = s.server.Start()
	}
	if err != nil {
		s.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { s.server.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	late.Stop()
	if err != nil || line != "READY unix:"+socket+"\n" {
		s.Fatalf("%q, %v", line, err)
	}
	s.Cleanup(s.stop)
}

func (s *soak) dial() {
	s.Helper()
	var err error
	if s.client, err = client.Dial(s.Context(), client.Options{Base: "unix:" + filepath.Join(s.dir, "socket"), Token: "soak-0123456789abcdefghijklmnopqrstuvwxyz"}); err != nil {
		s.Fatal(err)
	}
}

// store gives the server's own state directory an image.
func (s *soak) store() {
	archive := imagetest.Busybox(s.T, s.TempDir())
	for _, args := range [][]string{{"image", "import", archive}, {"image", "ls"}} {
		cmd := exec.Command(binary, args...)
		cmd.Env = append(os.Environ(), "CHECKFU_STATE="+filepath.Join(s.dir, "state"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			s.Fatalf("%s, %v", out, err)
		}
		s.image = busyboxReference.FindString(string(out))
	}
	if s.image == "" {
		s.Fatal("no image")
	}
}

func (s *soak) stop() {
	if s.client != nil {
		s.client.Close()
		s.client = nil
	}
	if s.server.ProcessState == nil {
		s.server.Process.Signal(syscall.SIGTERM)
		s.server.Wait()
	}
}

// round has so many lives, four at a time, and sweeps.
func (s *soak) round(lives int) {
	s.Helper()
	s.callers(s.Context(), lives)
	s.sweep()
}

// callers have lives, until ctx is done.
func (s *soak) callers(ctx context.Context, lives int) {
	queue := make(chan int)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for n := range queue {
				if err := s.life(ctx, n); err != nil && ctx.Err() == nil {
					s.Errorf("life %d: %v", n, err)
				}
			}
		})
	}
	for n := range lives {
		queue <- n
	}
	close(queue)
	all.Wait()
}

// midway waits until a machine is there.
func (s *soak) midway() {
	eventually(s.T, "a machine is there", func() bool {
		found, _ := filepath.Glob(filepath.Join(s.dir, "state", "native-*", "instances", "*"))
		return len(found) > 0
	})
}

// sweep ends what is nobody's, as whoever runs a server does from time to time.
func (s *soak) sweep() {
	s.Helper()
	now := sandbox.At(time.Now().Add(24 * time.Hour))
	if _, err := s.client.Cleanup(s.Context(), sandbox.CleanupRequest{Now: now, OrphanedBefore: now}); err != nil {
		s.Error(err)
	}
}

// life is one machine's, and what is made of it.
func (s *soak) life(ctx context.Context, n int) error {
	random := rand.New(rand.NewPCG(uint64(n), 41))
	p := s.client
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	capabilities, err := p.Capabilities(ctx)
	if err != nil {
		return err
	}
	mode := sandbox.RetentionEphemeralZDR
	if n%3 == 1 && len(capabilities.RetentionModes) > 1 {
		mode = sandbox.RetentionDurable
	}
	session := fmt.Sprintf("soak-%d", s.lives.Add(1))
	q := sandbox.ProvisionRequest{
		WorkspaceID: "w", SessionID: session, RunID: "r", AttemptID: "a", LeaseID: session, LeaseEpoch: 1,
		Target: capabilities.Target(),
		Profile: sandbox.Profile{
			ProfileID: "p", ProfileVersion: 1, Tier: sandbox.TierContainer, BaseImage: s.image, Packages: []sandbox.Package{},
			NetworkPolicy:  sandbox.NetworkPolicy{Mode: sandbox.NetworkNone},
			ResourceLimits: sandbox.Resources{CPUMillis: 2000, MemoryBytes: 128 << 20, DiskBytes: 32 << 20, MaxProcesses: 64, MaxDurationSeconds: 600},
			RetentionMode:  mode,
		},
		Platform: capabilities.Platforms[0], RootImage: s.image,
		Mounts:    []sandbox.Mount{{MountPath: "/mnt/rw", Access: sandbox.AccessReadWrite, Kind: sandbox.MountProject}},
		ExpiresAt: sandbox.At(time.Now().Add(time.Hour)),
	}
	h, err := p.Provision(ctx, q)
	if err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	id := h.Value.InstanceID
	s.mu.Lock()
	s.made = append(s.made, string(id))
	s.mu.Unlock()
	if err := p.WriteFile(ctx, id, sandbox.FileWrite{Path: "/mnt/rw/f", Content: []byte("staged\n")}); err != nil {
		return fmt.Errorf("writeFile: %w", err)
	}
	if _, err := p.Activate(ctx, id); err != nil {
		return fmt.Errorf("activate: %w", err)
	}
	script := func(text string) sandbox.Command {
		return sandbox.Command{Executable: "/bin/sh", Arguments: []string{"-c", text}, WorkingDirectory: "/mnt/rw", Environment: map[string]string{}, TimeoutSeconds: 60, OutputLimitBytes: 1 << 20}
	}
	if n%4 == 3 { // whoever began it hears no more of it
		s.killed.Add(1)
		gone, leave := context.WithTimeout(ctx, time.Duration(random.IntN(100))*time.Millisecond)
		p.Execute(gone, id, script("cat f; sleep 5"))
		leave()
		return p.Destroy(ctx, id)
	}
	got, err := p.Execute(ctx, id, script(`cat f; for i in $(seq 100); do echo $i >n$i; done; (sleep 1000 &) ; ls | wc -l`))
	if err != nil || string(got.Stdout) != "staged\n101\n" {
		return fmt.Errorf("execute: %q, %w", got.Stdout, err)
	}
	if n%4 == 2 { // its process is killed, and then its machine, by who may
		s.killed.Add(1)
		live, err := p.OpenProcess(ctx, id, string(wire.NewProcessID()), sandbox.ProcessRequest{Executable: "/bin/cat", Arguments: []string{}, WorkingDirectory: "/mnt/rw", Environment: map[string]string{}})
		if err != nil {
			return fmt.Errorf("openProcess: %w", err)
		}
		io.WriteString(live.Input(), "x")
		if n%8 == 2 {
			s.slay(id)
		}
		if err := live.Destroy(ctx); err != nil && n%8 != 2 {
			return fmt.Errorf("the process: %w", err)
		}
		return p.Destroy(ctx, id)
	}
	if text, err := p.ReadFile(ctx, id, sandbox.FileRead{Path: "/mnt/rw/n7", AllowedRoot: "/mnt/rw", MaximumBytes: 99}); err != nil || string(text) != "7\n" {
		return fmt.Errorf("readFile: %q, %w", text, err)
	}
	if mode == sandbox.RetentionEphemeralZDR {
		if _, err := p.Release(ctx, id, sandbox.ReleaseRequest{}); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		return nil
	}
	r, err := p.Release(ctx, id, sandbox.ReleaseRequest{ExpiresAt: sandbox.At(time.Now().Add(time.Hour))})
	if err != nil {
		return fmt.Errorf("release: %w", err)
	}
	copied, err := p.CloneSnapshot(ctx, sandbox.CloneRequest{Snapshot: *r.Value.Snapshot, TargetSessionID: session + "-copy"})
	if err != nil {
		return fmt.Errorf("cloneSnapshot: %w", err)
	}
	if err := p.DestroySnapshot(ctx, r.Value.Snapshot.SnapshotID); err != nil {
		return err
	}
	q.SessionID, q.RunID, q.LeaseID = session+"-copy", "again", session+"-copy"
	again, err := p.Resume(ctx, sandbox.ResumeRequest{Request: q, Snapshot: copied.Value})
	if err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	got, err = p.Execute(ctx, again.Value.InstanceID, script("ls | wc -l"))
	if err != nil || string(got.Stdout) != "101\n" {
		return fmt.Errorf("execute again: %q, %w", got.Stdout, err)
	}
	return errors.Join(p.Destroy(ctx, again.Value.InstanceID), p.DestroySnapshot(ctx, copied.Value.SnapshotID))
}

// slay kills all processes of a machine from outside.
func (s *soak) slay(id sandbox.InstanceID) {
	groups, _ := filepath.Glob("/proc/[0-9]*/cgroup")
	for _, file := range groups {
		text, _ := os.ReadFile(file)
		if strings.Contains(string(text), string(id)) {
			pid, _ := strconv.Atoi(strings.Split(file, "/")[2])
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// look counts what the server and the host hold now that nothing lives.
func (s *soak) look() held {
	s.Helper()
	dir := fmt.Sprintf("/proc/%d", s.server.Process.Pid)
	var h held
	count := func(pattern string) int {
		found, err := filepath.Glob(pattern)
		if err != nil {
			s.Fatal(err)
		}
		return len(found)
	}
	h.descriptors, h.threads = count(dir+"/fd/*"), count(dir+"/task/*")
	text, err := os.ReadFile(dir + "/statm")
	if err != nil {
		s.Fatal(err)
	}
	pages, _ := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	h.resident = pages * int64(os.Getpagesize())
	table, err := os.ReadFile(dir + "/mountinfo")
	if err != nil {
		s.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		// gVisor keeps one network namespace for all machines of a directory.
		if strings.Contains(line, s.dir) && !strings.Contains(line, "null-netns") {
			h.mounts++
		}
	}
	backing, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range backing {
		if of, _ := os.ReadFile(file); strings.HasPrefix(string(of), s.dir) {
			h.loops++
		}
	}
	// Each machine has groups named by its id; so has a directory here, while it lives.
	all, _ := filepath.Glob(filepath.Join(s.dir, "state", "native-*", "instances", "*"))
	for _, instance := range append(all, s.ids()...) {
		h.cgroups += count("/sys/fs/cgroup/*/*/"+filepath.Base(instance)) + count("/sys/fs/cgroup/*/"+filepath.Base(instance))
	}
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	spaces := map[string]bool{}
	for _, file := range lines {
		if text, _ := os.ReadFile(file); strings.Contains(string(text), s.dir) {
			space, _ := os.Readlink(filepath.Join(filepath.Dir(file), "ns", "net"))
			spaces[space] = true
		}
	}
	h.namespaces = len(spaces)
	filepath.WalkDir(filepath.Join(s.dir, "state"), func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			h.files++
		}
		return nil
	})
	return h
}

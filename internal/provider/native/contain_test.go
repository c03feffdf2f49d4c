package native

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/sandbox"
)

// stageHostile puts the hostile program into the machine before activation.
func stageHostile(t *testing.T, p *Provider, mounts ...sandbox.Mount) sandbox.InstanceID {
	t.Helper()
	return stageHostileRequest(t, p, request(p, append(mounts, work)...))
}

func stageHostileRequest(t *testing.T, p *Provider, r sandbox.ProvisionRequest) sandbox.InstanceID {
	t.Helper()
	id := provision(t, p, r)
	program, err := os.ReadFile(buildStatic(t, "./testdata/hostile"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.WriteFile(t.Context(), id, sandbox.FileWrite{Path: "/workspace/repo/hostile", Content: program, Executable: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Activate(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return id
}

func TestContainmentMustBePhysical_UnderALiveSwapper(t *testing.T) {
	const swaps = 100000
	drivers(t, func(t *testing.T, p *Provider) {
		id := stageHostile(t, p)
		outside := filepath.Join(p.opt.Dir, "outside")
		if err := errors.Join(os.Mkdir(outside, 0o755), os.WriteFile(filepath.Join(outside, "f"), []byte("OUTSIDE"), 0o644)); err != nil {
			t.Fatal(err)
		}
		swapper, err := p.OpenProcess(t.Context(), id, processID, sandbox.ProcessRequest{
			Executable: "/workspace/repo/hostile", Arguments: []string{"swap", sandbox.OutputPath, outside, "100000"}, WorkingDirectory: "/",
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(swapper.Output(), make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		in, _ := p.find(sandbox.OpReadFile, id)
		host := filepath.Join(in.at.home(), "outputs")
		done := make(chan sandbox.Exit, 1)
		go func() { exit, _ := swapper.Wait(t.Context()); done <- exit }()
		inside, refused, leaked := 0, 0, 0
		for {
			content, err := p.ReadFile(t.Context(), id, sandbox.FileRead{Path: sandbox.OutputPath + "/x/f", AllowedRoot: sandbox.OutputPath, MaximumBytes: 100})
			switch {
			case err != nil:
				refused++
			case string(content) == "inside":
				inside++
			default:
				t.Fatalf("read %q", content)
			}
			if leaked == 0 && naiveRead(host, "x/f") == "OUTSIDE" {
				leaked++
			}
			select {
			case exit := <-done:
				if exit.ExitCode == nil || *exit.ExitCode != 0 {
					t.Fatalf("the swapper ended early: %+v", exit)
				}
				t.Logf("%d swaps: %d reads inside, %d refused", swaps, inside, refused)
				if inside == 0 || refused == 0 || leaked == 0 {
					t.Errorf("inside %d, refused %d, leaked by a path check %d: the race was not hot, so it proves nothing", inside, refused, leaked)
				}
				return
			default:
			}
		}
	})
}

// naiveRead is what the contract forbids: resolve, compare text, read.
func naiveRead(root, rel string) string {
	resolved, err := filepath.EvalSymlinks(filepath.Join(root, rel))
	if err != nil || !strings.HasPrefix(resolved, root+"/") {
		return ""
	}
	content, _ := os.ReadFile(filepath.Join(root, rel))
	return string(content)
}

func TestReadFile_EveryKindOfTargetIsRefusedAtOnce(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := stageHostile(t, p)
		mustExit(t, sh(t, p, id, `cd /workspace/repo && mkfifo fifo && mkdir dir && ./hostile socket sock &&
			echo text > plain && ln plain hard && ln -s plain soft && ln -s /etc/passwd out && ln -s /proc/self/root/etc/passwd magic &&
			ln -s . loop && ln -s /etc dirlink && echo "$(mknod dev c 1 3 2>&1)" && ! test -e dev`), 0)
		for _, c := range []struct{ path, reason, content string }{
			{"plain", "", "text\n"},
			{"hard", "", "text\n"}, // another name of a file that is inside
			{"fifo", sandbox.ReasonNotRegular, ""},
			{"sock", sandbox.ReasonNotRegular, ""},
			{"dir", sandbox.ReasonNotRegular, ""},
			{"soft", sandbox.ReasonOutsideRoot, ""},
			{"out", sandbox.ReasonOutsideRoot, ""},
			{"magic", sandbox.ReasonOutsideRoot, ""},
			{"loop/plain", sandbox.ReasonOutsideRoot, ""},
			{"dirlink/passwd", sandbox.ReasonOutsideRoot, ""},
			{"absent", sandbox.ReasonNotFound, ""},
		} {
			begin := time.Now()
			content, err := p.ReadFile(t.Context(), id, sandbox.FileRead{Path: "/workspace/repo/" + c.path, AllowedRoot: "/workspace/repo", MaximumBytes: 100})
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("%s took %s", c.path, took)
			}
			if c.reason == "" {
				if err != nil || string(content) != c.content {
					t.Errorf("%s: %q %v", c.path, content, err)
				}
				continue
			}
			reasons := []string{c.reason}
			if p.opt.Driver.Name() == "runsc" && (c.path == "fifo" || c.path == "sock") {
				reasons = append(reasons, sandbox.ReasonNotFound) // it lives in the guest's own kernel
			}
			var e *sandbox.Error
			if !errors.As(err, &e) || !slices.Contains(reasons, e.Reason) {
				t.Errorf("%s: %q %v, want %s", c.path, content, err, c.reason)
			}
		}
		list, err := p.ListProjectDir(t.Context(), id, sandbox.Listing{Root: "/workspace/repo", MaxEntries: 100})
		if err != nil {
			t.Fatal(err)
		}
		types := map[string]sandbox.LeafType{}
		for _, l := range list.Leaves {
			types[l.Path] = l.Type
		}
		want := map[string]sandbox.LeafType{
			"fifo": sandbox.LeafFIFO, "sock": sandbox.LeafSocket, "hard": sandbox.LeafRegular, "plain": sandbox.LeafRegular, "hostile": sandbox.LeafRegular,
			"soft": sandbox.LeafSymlink, "out": sandbox.LeafSymlink, "magic": sandbox.LeafSymlink, "loop": sandbox.LeafSymlink, "dirlink": sandbox.LeafSymlink,
		}
		for path, leaf := range want {
			if types[path] != leaf {
				t.Errorf("%s listed as %q, want %s", path, types[path], leaf)
			}
		}
		if len(types) != len(want) {
			t.Errorf("listed %v", types)
		}
		if err := list.Validate(100); err != nil {
			t.Error(err)
		}
	})
}

func TestWriteFile_NoPathLeadsOutside(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := activated(t, p)
		mustExit(t, sh(t, p, id, "ln -s /etc /mnt/session/outputs/link; ln -s /nowhere /mnt/session/outputs/dangling; mkdir /mnt/session/outputs/dir"), 0)
		for _, path := range []string{
			"/link/new", "/link", "/dangling", "/dangling/x", "/dir", "/../x", "/a//b", "/a/./b", "/a/", "/" + strings.Repeat("n", 256),
			"/" + strings.Repeat("d/", 2048) + "f",
		} {
			err := p.WriteFile(t.Context(), id, sandbox.FileWrite{Path: sandbox.OutputPath + path, Content: []byte("x")})
			var e *sandbox.Error
			if !errors.As(err, &e) {
				t.Errorf("%.60s: %v", path, err)
			}
		}
		for _, path := range []string{"/" + strings.Repeat("n", 255), "/-rf", "/new\nline", "/\xff\xfe", "/a/b/c/d"} {
			if err := p.WriteFile(t.Context(), id, sandbox.FileWrite{Path: sandbox.OutputPath + path, Content: []byte("x")}); err != nil {
				t.Errorf("%q: %v", path, err)
			}
		}
		if s := sh(t, p, id, "ls /etc/new"); s.Exit.ExitCode == nil || *s.Exit.ExitCode == 0 {
			t.Error("a file was written through a link")
		}
	})
}

// B23: what a workload leaves so that its machine cannot be cleared away is cleared
// away at the first try, by a destroy and by a release, in memory and on the disk: a
// tree 400 deep, modules without a writable directory, one that nobody may enter, what
// it made immutable as far as it can, a program that stands in the tree, and an
// administrator of the host who does.
func TestDestroy_TreesThatResistRemoval(t *testing.T) {
	for _, how := range []string{"destroy", "release"} {
		t.Run(how, func(t *testing.T) {
			drivers(t, func(t *testing.T, p *Provider) { resistsRemoval(t, p, request(p, work), how == "release") })
		})
	}
	t.Run("durable release", func(t *testing.T) {
		durableDrivers(t, func(t *testing.T, p *Provider) { resistsRemoval(t, p, retained(p, work), true) })
	})
}

func resistsRemoval(t *testing.T, p *Provider, r sandbox.ProvisionRequest, release bool) {
	id := stageHostileRequest(t, p, r)
	mustExit(t, sh(t, p, id, `cd /workspace/repo && ./hostile deep . 400 && mkdir -p mod/cache && echo x > mod/cache/f && chmod -R 0555 mod && mkdir none && chmod 0000 none
		mkdir hard && echo x > hard/f && ! ./hostile immutable hard/f && ! ./hostile immutable hard`), 0)
	list, err := p.ListProjectDir(t.Context(), id, sandbox.Listing{Root: work.MountPath, MaxEntries: 1000})
	if err != nil || len(list.Leaves) != 4 {
		t.Errorf("%d leaves, %v", len(list.Leaves), err)
	}
	open(t, p, id, "cd /workspace/repo/mod && exec sleep 60") // busy inside
	in, err := p.find(sandbox.OpDestroy, id)
	if err != nil {
		t.Fatal(err)
	}
	mount := filepath.Join(in.at.home(), "mounts", "0")
	if !release { // which is waited for, and costs seconds
		held, err := os.Open(filepath.Join(mount, "mod"))
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
	}
	for _, name := range []string{"hard/f", "hard"} { // where the workload may not, the host may
		if err := immutable(filepath.Join(mount, name)); err != nil {
			t.Logf("%s: %v", name, err)
		}
	}
	if !release {
		err = p.Destroy(t.Context(), id)
	} else {
		q := sandbox.ReleaseRequest{}
		if r.Profile.RetentionMode == sandbox.RetentionDurable {
			q.ExpiresAt = later(time.Hour)
		}
		var h sandbox.Handoff[sandbox.Released]
		if h, err = p.Release(t.Context(), id, q); err == nil {
			err = h.Rollback(t.Context())
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if left := census(t, p); len(left) > 0 {
		t.Errorf("left:\n%s", strings.Join(left, "\n"))
	}
}

// immutable sets the flag that not even root may remove a file under.
func immutable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err
	}
	return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags)|unix.STATX_ATTR_IMMUTABLE)
}

// A flood must not be collected first and cut afterwards.
func TestExecute_AFloodDoesNotGrowOurMemory(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := activated(t, p)
		flood := func() {
			c := shell("yes & sleep 3")
			c.OutputLimitBytes = 64 << 10
			if _, err := p.Execute(t.Context(), id, c); !errors.Is(err, &sandbox.Error{Kind: sandbox.OutputLimitExceeded}) {
				t.Errorf("%v", err)
			}
		}
		flood() // what the first run of anything costs is not the flood's
		before := residentPeak(t, true)
		flood()
		if grown := residentPeak(t, false) - before; grown > 2<<20 {
			t.Errorf("grew by %d KiB", grown>>10)
		}
	})
}

// residentPeak reads the most memory this process has had since it was reset.
func residentPeak(t *testing.T, reset bool) int64 {
	t.Helper()
	if reset {
		if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
			t.Fatal(err)
		}
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(status) {
		if bytes.HasPrefix(line, []byte("VmHWM:")) {
			var kib int64
			for _, f := range bytes.Fields(line)[1:2] {
				for _, c := range f {
					kib = kib*10 + int64(c-'0')
				}
			}
			return kib << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/provider/native/gvisor"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/internal/provider/native/recipe"
	"github.com/checkfu/checkfu/sandbox"
)

// tool is a package that is not there: what it installs is a test's script.
var tool = sandbox.Package{Manager: sandbox.ManagerApt, Name: "tool", Version: "1.0"}

// scripted is a recipe of one step for each script. It may reach what is listed.
func scripted(scripts ...string) func([]sandbox.Package, recipe.Registries) (recipe.Recipe, error) {
	return func(packages []sandbox.Package, _ recipe.Registries) (recipe.Recipe, error) {
		r := recipe.Recipe{
			Files:        []recipe.File{{Path: "/var/lib/checkfu-build/ca.pem", Mode: 0o644, Content: []byte("authorities\n")}},
			Env:          []string{"PATH=/bin", "HOME=/root"},
			Destinations: []sandbox.Destination{listed},
			Discard:      []string{"/var/lib/checkfu-build", "/var/log"},
		}
		for _, s := range scripts {
			r.Steps = append(r.Steps, recipe.Step{Packages: packages, Argv: []string{"/bin/sh", "-ec", s}, Dir: "/"})
		}
		return r, nil
	}
}

// newBuilder gives p a builder with an image store of its own, whose builds do what
// scripts say. The test fails if it leaves anything.
func newBuilder(t testing.TB, p *Provider, scripts ...string) *Builder {
	t.Helper()
	dir, err := os.MkdirTemp(shared.dir, "build-")
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(dir, 0o711)
	store, err := image.Open(filepath.Join(dir, "images"), image.Options{IDBase: IDBase})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Import(t.Context(), filepath.Join(shared.dir, "busybox.tar")); err != nil {
		t.Fatal(err)
	}
	b, err := NewBuilder(buildOptions(filepath.Join(dir, "machines"), newDriver(t, "runsc", dir), store, shared.init, nil))
	if err != nil {
		t.Fatal(err)
	}
	b.recipe = scripted(scripts...)
	p.opt.Builder, p.opt.Images = b, store
	t.Cleanup(func() {
		if left := census(t, b.p); len(left) > 0 {
			t.Errorf("builds left:\n%s", strings.Join(left, "\n"))
		}
		if left, err := os.ReadDir(filepath.Join(dir, "images", "tmp")); err != nil || len(left) > 0 {
			t.Errorf("builds left in the store: %v %v", left, err)
		}
	})
	return b
}

// packaged asks p for an instance with the package.
func packaged(p *Provider) sandbox.ProvisionRequest {
	r := request(p)
	r.Profile.Packages = []sandbox.Package{tool}
	return r
}

// counted counts the builds that b begins.
func counted(b *Builder) *atomic.Int64 {
	var n atomic.Int64
	make := b.recipe
	b.recipe = func(packages []sandbox.Package, r recipe.Registries) (recipe.Recipe, error) {
		n.Add(1)
		return make(packages, r)
	}
	return &n
}

// A profile's packages are in its machine's root, which is as sealed as any, and the
// machine is told to be what was asked for. The second one costs no build.
func TestBuild_PackagesAreInTheRootOfTheirMachines(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		b := newBuilder(t, p,
			`test "$(cat /var/lib/checkfu-build/ca.pem)" = authorities; test "$(id -u)" = 0; test "$HOME" = /root; echo "#!/bin/sh
echo it works" >/bin/tool; chmod 755 /bin/tool; mkdir -p /var/log; echo noise >/var/log/tool; chown 7:8 /bin/tool; echo installing it`,
			`test -x /bin/tool; rm /bin/setuid-id; ln /bin/tool /bin/tool2; ln -s tool /bin/tool3`,
		)
		var said []BuildProgress
		b.opt.Progress = func(p BuildProgress) { said = append(said, p) }
		builds := counted(b)
		r := packaged(p)
		for range 2 {
			h, err := p.Provision(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			id := h.Value.InstanceID
			if got, want := h.Value, sandbox.InstanceOf(r, id, sandbox.StateProvisioning, profileDigest(r.Profile)); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%+v", got)
			}
			if _, err := p.Activate(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			s := sh(t, p, id, "tool; tool2; tool3; stat -c %u:%g /bin/tool; ls /bin/setuid-id /var/log /var/lib 2>/dev/null; touch /bin/x 2>/dev/null || echo sealed; id -u")
			if want := strings.Repeat("it works\n", 3) + "7:8\nsealed\n10001\n"; string(s.Stdout) != want {
				t.Errorf("got %q, want %q\n%s", s.Stdout, want, s.Stderr)
			}
			if err := p.Destroy(t.Context(), id); err != nil {
				t.Error(err)
			}
		}
		if n := builds.Load(); n != 1 {
			t.Errorf("%d builds", n)
		}
		var phases []string
		for _, s := range said {
			if len(phases) == 0 || phases[len(phases)-1] != s.Phase {
				phases = append(phases, s.Phase)
			}
		}
		if want := []string{BuildWaits, BuildStarts, BuildInstalls, BuildKeeps}; !slices.Equal(phases, want) {
			t.Errorf("phases %v", phases)
		}
		if !slices.ContainsFunc(said, func(s BuildProgress) bool {
			return s.Line == "installing it" && slices.Equal(s.Packages, []string{"apt:tool@1.0"})
		}) {
			t.Errorf("%+v", said)
		}
	})
}

// What is built twice of the same packages is the same image.
func TestBuild_TwiceIsTheSame(t *testing.T) {
	p := newProvider(t, "runsc")
	var digests []string
	for range 2 {
		b := newBuilder(t, p, "mkdir -p /opt/tool/lib; date >/dev/null; echo x >/opt/tool/lib/x; ln /opt/tool/lib/x /opt/tool/y; rm /bin/setuid-id")
		r := packaged(p)
		img, err := b.Materialize(t.Context(), r.Profile, r.Platform)
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, img.Digest)
		if d := img.Derivation; d == nil || d.Base != string(sandbox.ImageDigest(r.RootImage)) || d.Profile != string(profileDigest(r.Profile)) || !slices.Equal(d.Packages, []string{"apt:tool@1.0"}) {
			t.Errorf("%+v", d)
		}
	}
	if digests[0] != digests[1] {
		t.Error(digests)
	}
}

// Ten that ask at once, of two processes' builders, cost one build.
func TestBuild_OnceForAllWhoAsk(t *testing.T) {
	p := newProvider(t, "runsc")
	b := newBuilder(t, p, "echo x >/bin/tool")
	other, err := NewBuilder(b.opt)
	if err != nil {
		t.Fatal(err)
	}
	other.recipe = b.recipe
	runs := make(chan struct{}, 10)
	b.p.opt.Step = func(step string) {
		if step == "installed" {
			runs <- struct{}{}
		}
	}
	other.p.opt.Step = b.p.opt.Step
	r := packaged(p)
	var group sync.WaitGroup
	for i := range 10 {
		group.Go(func() {
			root, err := []*Builder{b, other}[i%2].Root(t.Context(), r.Profile, r.Platform)
			if err != nil {
				t.Error(err)
				return
			}
			root.Release()
		})
	}
	group.Wait()
	if n := len(runs); n != 1 {
		t.Errorf("%d builds", n)
	}
}

// What a mirror handed out is nobody's image who asks another registry, whatever the
// names of the packages are.
func TestBuild_OtherRegistriesMakeAnotherImage(t *testing.T) {
	mirror, err := recipe.DecodeRegistries([]byte(`{"v":1,"managers":[{"manager":"npm","mirror":"https://npm.corp.test/"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	key := func(r recipe.Registries, m sandbox.PackageManager) image.Derivation {
		t.Helper()
		b := &Builder{opt: BuilderOptions{Registries: r}}
		profile := sandbox.Profile{BaseImage: "a@sha256:" + strings.Repeat("0", 64), Packages: []sandbox.Package{{Manager: m, Name: "tool"}}}
		j, err := b.job(profile, sandbox.Platform{OS: "linux", Architecture: "amd64"})
		if err != nil {
			t.Fatal(err)
		}
		return j.derived
	}
	ours, theirs := key(recipe.Registries{}, "npm"), key(mirror, "npm")
	if ours.Key == theirs.Key || ours.Profile != theirs.Profile {
		t.Errorf("%+v\n%+v", ours, theirs)
	}
	if key(recipe.Registries{}, "apt").Key != key(mirror, "apt").Key {
		t.Error("a mirror of another manager makes another image")
	}
}

// Who waits for another's build shares its failure, and not its impatience.
func TestBuild_AFailureIsShared(t *testing.T) {
	p := newProvider(t, "runsc")
	b := newBuilder(t, p, "true")
	r := packaged(p)
	begun, wrong := make(chan struct{}), errors.New("no such registry")
	var builds atomic.Int64
	release := make(chan struct{})
	b.recipe = func([]sandbox.Package, recipe.Registries) (recipe.Recipe, error) {
		if builds.Add(1) == 1 {
			close(begun)
			<-release
		}
		return recipe.Recipe{}, wrong
	}
	waits := make(chan struct{}, 2)
	b.opt.Progress = func(p BuildProgress) { waits <- struct{}{} }
	failed := make(chan error, 2)
	go func() { _, err := b.Materialize(t.Context(), r.Profile, r.Platform); failed <- err }()
	<-begun
	go func() { _, err := b.Materialize(t.Context(), r.Profile, r.Platform); failed <- err }()
	<-waits
	close(release)
	for range 2 {
		if err := <-failed; !errors.Is(err, wrong) {
			t.Error(err)
		}
	}
	if n := builds.Load(); n != 1 {
		t.Errorf("%d builds", n)
	}
}

// Who gives up a build fails for itself alone, by whatever name: the error of what was
// killed with it says nothing of a context.
func TestBuild_NoInterruptionIsShared(t *testing.T) {
	p := newProvider(t, "runsc")
	b := newBuilder(t, p, "true")
	r := packaged(p)
	begun, release := make(chan struct{}), make(chan struct{})
	killed, own := errors.New("signal: killed"), errors.New("its own")
	var builds atomic.Int64
	b.recipe = func([]sandbox.Package, recipe.Registries) (recipe.Recipe, error) {
		if builds.Add(1) > 1 {
			return recipe.Recipe{}, own
		}
		close(begun)
		<-release
		return recipe.Recipe{}, killed
	}
	waits := make(chan struct{}, 2)
	b.opt.Progress = func(BuildProgress) { waits <- struct{}{} }
	ask := func(ctx context.Context) chan error {
		said := make(chan error, 1)
		go func() { _, err := b.Materialize(ctx, r.Profile, r.Platform); said <- err }()
		return said
	}
	impatient, giveUp := context.WithCancelCause(t.Context())
	first := ask(impatient)
	<-begun
	second := ask(t.Context())
	<-waits
	giveUp(errors.New("the user left"))
	close(release)
	if err := <-first; !errors.Is(err, killed) {
		t.Errorf("who gave up: %v", err)
	}
	if err := <-second; !errors.Is(err, own) {
		t.Errorf("who waited: %v", err)
	}
}

// Whatever a package does when it is installed, it does it to its own machine: it
// fails by its name and leaves nothing, or it is in the image as what it is.
func TestBuild_HostilePackages(t *testing.T) {
	p := newProvider(t, "runsc")
	b := newBuilder(t, p)
	b.opt.Limits = sandbox.Resources{CPUMillis: 2000, MemoryBytes: 256 << 20, DiskBytes: 64 << 20, MaxProcesses: 48, MaxDurationSeconds: 60}
	for i, c := range []struct {
		name, script string
		fails        string // what the error says
		then         string // what a machine of the image says
	}{
		{"fails", `echo "first"; printf '\033[31mred\377 \"quoted\"\n'; echo last >&2; exit 3`, `could not be installed: sh ended with exit code 3; it ended with: "first" "[31mred? \\\"quoted\\\"" "last"`, ""},
		{"reaches a host that is not listed", ask("other.test:443") + ` | tee /dev/stderr | grep -q 200`, `"HTTP/1.1 403 Forbidden"`, ""},
		{"reaches an address", `nc -w 2 8.8.8.8 53 </dev/null`, "exit code 1", ""},
		{"fills the disk", `dd if=/dev/zero of=/big bs=1M`, "No space left", ""},
		{"fills it with a hole", `truncate -s 1099511627776 /big`, "makes no image", ""},
		{"forks without end", `f() { f | f & f; }; f`, "could not be installed", ""},
		{"takes all memory", `awk "BEGIN { s = \"x\"; while (1) s = s s }"`, "could not be installed", ""},
		{"never ends", `sleep 600`, "it took longer than 2 s", ""},
		{"ends its machine", `kill -9 1; sleep 60`, "could not be installed", ""},
		{"talks without end", `yes | head -c 5000000; echo done; exit 9`, `"y" "done"`, ""},
		{"tries to get out", `mknod /bin/dev0 b 8 0 && exit 9; mount -t tmpfs x /bin && exit 9; (echo x >/run/checkfu/init) && exit 9; rm -rf /run/checkfu /proc/1 2>/dev/null || true; echo x >/bin/tool`, "", "ls /bin/dev0 2>/dev/null || echo none: none"},
		{"deletes with a mark", `echo x >/bin/.wh.sh`, `a name that means a deletion`, ""},
		{"leaves a FIFO", `rm /bin/setuid-id; mkfifo /bin/setuid-id; echo x >/bin/tool`, "", "ls /bin/setuid-id 2>/dev/null || echo none: none"},
		{"leaves processes", `(setsid sleep 600 </dev/null >/dev/null 2>&1 &); (setsid sleep 600 &); echo x >/bin/tool`, "", "pidof sleep || echo none: none"},
		{"leaves a setuid program", `cp /bin/busybox /bin/busybox-suid; chmod 4755 /bin/busybox-suid`, "", "/bin/busybox-suid id -u: 10001"},
		{"plants links", `ln -s / /bin/all; ln -s /etc/shadow /bin/shadow; rm -r /usr; ln -s ../../../../../../ /usr`, "", "ls -d /bin/all/bin/sh; ls /usr/bin/sh; cat /bin/shadow 2>/dev/null || echo none: /bin/all/bin/sh\n/usr/bin/sh\nnone"},
		{"buries", `d=/bin; for i in $(seq 300); do d=$d/d; done; mkdir -p $d`, "makes no image", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.recipe = scripted(c.script)
			r := packaged(p)
			r.Profile.Packages[0].Version = fmt.Sprint("1.", i) // another image, and the same base
			if c.name == "never ends" {
				defer func(limits sandbox.Resources) { b.opt.Limits = limits }(b.opt.Limits)
				b.opt.Limits.MaxDurationSeconds = 2
			}
			before, err := b.opt.Images.(*image.Store).List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			h, err := p.Provision(t.Context(), r)
			if c.fails != "" {
				e, failed := errors.AsType[*BuildError](err)
				var said *sandbox.Error
				if !failed || !strings.Contains(e.Error(), c.fails) || !errors.As(err, &said) || said.Kind != sandbox.OperationFailed || said.Reason != fmt.Sprint("packages: apt:tool@1.", i) {
					t.Fatalf("%v", err)
				}
				if len(err.Error()) > 4096 {
					t.Errorf("%d bytes of an error", len(err.Error()))
				}
				images, err := b.opt.Images.(*image.Store).List(t.Context())
				if err != nil || len(images) != len(before) {
					t.Errorf("%v %v", images, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			id := h.Value.InstanceID
			if _, err := p.Activate(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			if script, want, ok := strings.Cut(c.then, ": "); ok {
				if s := sh(t, p, id, script); strings.TrimSpace(string(s.Stdout)) != want {
					t.Errorf("%q, want %q: %s", s.Stdout, want, s.Stderr)
				}
			}
			if err := p.Destroy(t.Context(), id); err != nil {
				t.Error(err)
			}
		})
	}
}

// A build that nobody waits for any more leaves nothing, and neither does a request
// that cannot be met.
func TestBuild_GivenUp(t *testing.T) {
	p := newProvider(t, "runsc")
	b := newBuilder(t, p, "sleep 600")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.opt.Progress = func(p BuildProgress) {
		if p.Phase == BuildInstalls {
			cancel()
		}
	}
	if _, err := p.Provision(ctx, packaged(p)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	r := packaged(p)
	r.Profile.Packages[0].Manager = sandbox.ManagerPip
	b.recipe = recipe.For
	var said *sandbox.Error
	if _, err := p.Provision(t.Context(), r); !errors.As(err, &said) || slices.Contains(recipe.Managers(), sandbox.ManagerPip) != (said.Kind != sandbox.CapabilityUnavailable) {
		t.Errorf("%v", err)
	}
	r.Profile.Packages = []sandbox.Package{{Manager: sandbox.ManagerApt, Name: "/etc/passwd"}}
	if _, err := p.Provision(t.Context(), r); !errors.As(err, &said) || said.Reason != sandbox.ReasonInvalidRequest {
		t.Errorf("%v", err)
	}
	p.opt.Builder = nil
	c, err := p.Capabilities(t.Context())
	if err != nil || len(c.PackageManagers) != 0 {
		t.Errorf("%v %v", c.PackageManagers, err)
	}
	if _, err := p.Provision(t.Context(), packaged(p)); !errors.Is(err, sandbox.Unavailable(sandbox.OpProvision, sandbox.RequirePackages, "apt", "none")) {
		t.Errorf("%v", err)
	}
}

// A root of a build that is not the overlay in its home is found out.
func TestBuild_VerifiedFromOutside(t *testing.T) {
	p := newProvider(t, "runsc")
	b := newBuilder(t, p, "true")
	b.p.opt.Step = func(step string) {
		if step != "started" {
			return
		}
		all, err := filepath.Glob(filepath.Join(b.p.instancesDir(), "*", "root"))
		if err != nil || len(all) != 1 {
			t.Errorf("%v %v", all, err)
			return
		}
		if err := unix.Mount("none", all[0], "tmpfs", 0, ""); err != nil {
			t.Error(err)
		}
	}
	if _, err := p.Provision(t.Context(), packaged(p)); err == nil || !strings.Contains(err.Error(), "is not the overlay") {
		t.Errorf("%v", err)
	}
}

// An ordinary user's machines install nothing, and say so before anything is made.
func TestBuild_NotWithoutLimits(t *testing.T) {
	d, err := gvisor.New(gvisor.Options{Root: filepath.Join(t.TempDir(), "r"), CgroupParent: cgroupParent, Rootless: true})
	if err != nil {
		t.Fatal(err)
	}
	b := &Builder{p: &Provider{opt: Options{Driver: d, Egress: testGuard("", "plain")}}}
	if err := b.Lacks(t.Context()); err == nil || !strings.Contains(err.Error(), "no resource limits") {
		t.Error(err)
	}
	p := &Provider{opt: Options{Builder: b}}
	if got := p.managers(); len(got) != 0 {
		t.Error(got)
	}
}

// What is kept with its packages goes on with them, on the same image or, when that
// was pruned, on one that is built anew.
func TestBuild_ADurableSessionKeepsItsPackages(t *testing.T) {
	p := newProvider(t, "runsc")
	p.opt.Durable = true
	p.openSnapshots()
	if how, err := p.Keeps(t.Context()); err != nil {
		t.Skip(how, err)
	}
	b := newBuilder(t, p, "echo '#!/bin/sh' >/bin/tool; echo 'echo it works' >>/bin/tool; chmod 755 /bin/tool")
	builds := counted(b)
	r := packaged(p)
	r.Profile.RetentionMode = sandbox.RetentionDurable
	id := durableInstance(t, p, r)
	ended, err := p.Release(t.Context(), id, sandbox.ReleaseRequest{ExpiresAt: later(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	ref := *ended.Value.Snapshot
	for _, pruned := range []bool{false, true} {
		if pruned {
			store := b.opt.Images.(*image.Store)
			images, err := store.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range images {
				if i.Derivation == nil {
					continue
				}
				if err := store.Remove(t.Context(), i.Digest); err != nil {
					t.Fatal(err)
				}
			}
		}
		again := resumed(t, p, r, ref)
		if s := sh(t, p, again, "tool"); string(s.Stdout) != "it works\n" {
			t.Errorf("%q %s", s.Stdout, s.Stderr)
		}
		if err := p.Destroy(t.Context(), again); err != nil {
			t.Fatal(err)
		}
	}
	if n := builds.Load(); n != 2 {
		t.Errorf("%d builds", n)
	}
	if err := p.DestroySnapshot(t.Context(), ref.SnapshotID); err != nil {
		t.Error(err)
	}
}

// A recipe's file does not hide what a link of the image leads to.
func TestLayFile(t *testing.T) {
	image, skeleton := t.TempDir(), t.TempDir()
	if err := errors.Join(os.MkdirAll(image+"/usr/bin", 0o755), os.Symlink("usr/bin", image+"/bin")); err != nil {
		t.Fatal(err)
	}
	for path, good := range map[string]bool{"/usr/bin/x": true, "/etc/deep/y": true, "/bin/x": false, "/bin/deep/x": false} {
		err := layFile(skeleton, image, recipe.File{Path: path, Mode: 0o755, Content: []byte("x")})
		if (err == nil) != good {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// What a recipe's file or a mount lies in is as the image has it, or a build that
// touches it would change it; but no link is followed to find out.
func TestLikeImage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files away")
	}
	image, skeleton := t.TempDir(), t.TempDir()
	private := t.TempDir()
	err := errors.Join(
		os.MkdirAll(image+"/var/lib", 0o755), os.Lchown(image+"/var/lib", IDBase, IDBase+7), os.Chmod(image+"/var/lib", 0o750|os.ModeSetgid),
		os.Mkdir(image+"/tmp", 0o700), os.Mkdir(private+"/x", 0o700), os.Symlink(private, image+"/srv"),
		os.MkdirAll(skeleton+"/srv/x", 0o755), os.Mkdir(skeleton+"/tmp", 0o755), os.WriteFile(skeleton+"/file", nil, 0o600),
		layFile(skeleton, image, recipe.File{Path: "/var/lib/mine/x", Mode: 0o755, Content: []byte("x")}),
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := likeImage(skeleton, image); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"var": "755 0:0", "var/lib": fmt.Sprintf("2750 %d:%d", IDBase, IDBase+7), "var/lib/mine": fmt.Sprintf("755 %d:%[1]d", IDBase),
		"srv/x": "755 0:0", "tmp": "755 0:0", "file": "600 0:0",
	} {
		var s unix.Stat_t
		if err := unix.Lstat(filepath.Join(skeleton, name), &s); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%o %d:%d", s.Mode&0o7777, s.Uid, s.Gid); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain\n": "plain", "\x1b[2J\x1b[31mred\x07\n": "[2J[31mred", "10%\r50%\r100%\r\n": "100%", "a\tb": "a b", "\xff\xfe\n": "?", "  \n": "",
		strings.Repeat("é", 200): strings.Repeat("é", maxLine/2), "\u202egnp.exe": "gnp.exe",
	} {
		if got := printable([]byte(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	for _, seed := range []string{"a\n", "\x1b]0;x\x07\r\n", "\xc3\x28", strings.Repeat("é", 300)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if got := printable(line); len(got) > maxLine || strings.ContainsAny(got, "\x1b\r\n\x00\u202e") {
			t.Errorf("%q: %q", line, got)
		}
	})
}

// buildOptions are those of the builders of these tests.
func buildOptions(dir string, d machine.Driver, store *image.Store, init []byte, step func(string)) BuilderOptions {
	limits := BuildLimits
	limits.DiskBytes = 256 << 20
	return BuilderOptions{Dir: dir, Driver: d, Images: store, Init: init, Egress: testGuard(dir, "plain"), Step: step, Limits: limits}
}

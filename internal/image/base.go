package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// BasePackages are in every base image, beside Debian's required ones.
var BasePackages = []string{"ca-certificates", "git", "procps", "python3-minimal"}

// BaseEpoch is the time of everything in a base image that would else be newer.
var BaseEpoch = time.Unix(1700000000, 0).UTC()

// BaseOptions say what goes into a base image. The zero value is usable.
type BaseOptions struct {
	// Suite is the Debian suite, such as "bookworm"; "" is the host's own.
	Suite string
	// Packages are added to BasePackages.
	Packages []string
	// Name is the image's name; "" is "debian-SUITE".
	Name string
	// Root, if set, is whom the build is among; nil is the host's root.
	Root *BuildRoot
}

// BuildRoot is for who is root in a user namespace of 65536 ids and one more: the build
// is root among those ids. The image is the same.
type BuildRoot struct {
	// IDBase is the first of the ids, as the caller's namespace calls it.
	IDBase int
	// Reach makes a directory reachable for the ids, who may not pass through those
	// above it, and returns its path.
	Reach func(dir string) (string, error)
}

// names of suites and packages, so that none is taken for an option.
var debianName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]*$`)

var imageName = regexp.MustCompile(`^[a-z0-9]+([._/-][a-z0-9]+)*$`)

// BuildBase makes a Debian base image with mmdebstrap from the host's own apt
// sources, for the host's own architecture. The image has the users root and
// checkfu (10001), and holds no machine id, log, cache or list of sources: the
// same package versions give the same digest.
//
// Blocks: for minutes, until ctx is done.
// Errors: ErrUnsupported if mmdebstrap is missing, the caller is not root (see
// BuildRoot), or
// no apt source has the suite; without a kind, and with mmdebstrap's last
// words, when it fails. A failed build leaves the store as it was.
func (s *Store) BuildBase(ctx context.Context, o BaseOptions) (Image, error) {
	img, err := s.buildBase(ctx, o)
	if err != nil {
		return Image{}, within("build", o.Suite, err)
	}
	return img, nil
}

func (s *Store) buildBase(ctx context.Context, o BaseOptions) (_ Image, err error) {
	program, err := exec.LookPath("mmdebstrap")
	if err != nil {
		return Image{}, &Error{Kind: ErrUnsupported, Reason: "mmdebstrap is missing: install the Debian package mmdebstrap", Err: err}
	}
	if os.Geteuid() != 0 {
		return Image{}, &Error{Kind: ErrUnsupported, Reason: "building a base image needs root"}
	}
	if o.Suite == "" {
		if o.Suite, err = hostSuite("/etc/os-release"); err != nil {
			return Image{}, err
		}
	}
	packages := slices.Concat(BasePackages, o.Packages)
	slices.Sort(packages)
	packages = slices.Compact(packages)
	for _, n := range append([]string{o.Suite}, packages...) {
		if !debianName.MatchString(n) {
			return Image{}, &Error{Kind: ErrUnsupported, Reason: "not a suite or package name", Got: n}
		}
	}
	if o.Name == "" {
		o.Name = "debian-" + o.Suite
	}
	if !imageName.MatchString(o.Name) {
		return Image{}, &Error{Kind: ErrUnsupported, Reason: "not an image name", Got: o.Name}
	}
	sources, err := aptSources(ctx, o.Suite)
	if err != nil {
		return Image{}, err
	}
	st, err := s.stage(ctx)
	if err != nil {
		return Image{}, err
	}
	defer func() { err = joined(err, st.close()) }()
	layer, err := st.debian(ctx, program, o, packages, sources)
	if err != nil {
		return Image{}, err
	}
	config, err := json.Marshal(v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH, Created: v1.Time{Time: BaseEpoch},
		Config: v1.Config{
			Env:        []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"},
			WorkingDir: "/workspace",
			User:       fmt.Sprint(workloadID, ":", workloadID),
		},
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{layer.Digest}},
	})
	if err != nil {
		return Image{}, err
	}
	// Only now, for the minutes before concern nobody else.
	unlock, err := s.lock(ctx, "import.lock")
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	return st.assemble(ctx, config, []v1.Descriptor{layer}, o.Name)
}

// debian runs mmdebstrap and stages the layer made of what it writes. The
// layer stays uncompressed: no two compressors agree on bytes for ever.
func (st *stage) debian(ctx context.Context, program string, o BaseOptions, packages []string, sources []string) (v1.Descriptor, error) {
	args := []string{
		"--mode=root", "--variant=minbase", "--format=tar",
		"--include=" + strings.Join(packages, ","),
		// The stage is closed to apt's own download user.
		`--aptopt=APT::Sandbox::User "root"`,
		o.Suite, "-",
	}
	cmd := exec.CommandContext(ctx, program, append(args, sources...)...)
	cmd.Env = append(os.Environ(),
		"TMPDIR="+st.dir,
		fmt.Sprint("SOURCE_DATE_EPOCH=", BaseEpoch.Unix()),
		"PYTHONHASHSEED=0", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	// What mmdebstrap mounts into the tree must be gone before the stage is
	// removed, however it ended, or the removal would walk into the host's
	// /dev. So its mounts and processes are in namespaces that end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Unshareflags: syscall.CLONE_NEWNS,
		Cloneflags:   syscall.CLONE_NEWPID,
		Pdeathsig:    syscall.SIGKILL,
	}
	if o.Root != nil {
		tmp, err := o.Root.take(cmd.SysProcAttr, filepath.Join(st.dir, "build"))
		if err != nil {
			return v1.Descriptor{}, err
		}
		cmd.Env = append(cmd.Env, "TMPDIR="+tmp) // of two values the last counts
	}
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return v1.Descriptor{}, err
	}
	said := &lines{each: func(line string) { st.store.report(Progress{Stage: "build", Detail: line}) }}
	cmd.Stderr = said
	// Pdeathsig is about the thread that starts the program, not the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return v1.Descriptor{}, err
	}
	h, size, err := st.normalised(ctx, out)
	if err != nil {
		cmd.Cancel()
	}
	if werr := cmd.Wait(); werr != nil && ctx.Err() == nil {
		return v1.Descriptor{}, &Error{Reason: "mmdebstrap: " + said.last, Err: errors.Join(werr, err)}
	}
	if err != nil {
		return v1.Descriptor{}, err
	}
	return v1.Descriptor{MediaType: types.OCIUncompressedLayer, Digest: h, Size: size}, ctx.Err()
}

// take makes a program root among the ids, and dir a directory for it.
func (r *BuildRoot) take(attr *syscall.SysProcAttr, dir string) (string, error) {
	const ids = 1 << 16
	m := []syscall.SysProcIDMap{{ContainerID: 0, HostID: r.IDBase, Size: ids}}
	attr.Cloneflags |= syscall.CLONE_NEWUSER
	attr.UidMappings, attr.GidMappings, attr.GidMappingsEnableSetgroups = m, m, true
	attr.Credential = &syscall.Credential{}
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, r.IDBase, r.IDBase)); err != nil {
		return "", err
	}
	return r.Reach(dir)
}

// hostSuite reads VERSION_CODENAME.
func hostSuite(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok {
			return strings.Trim(v, `"'`), nil
		}
	}
	return "", &Error{Kind: ErrUnsupported, Path: path, Reason: "the host names no VERSION_CODENAME; give a suite"}
}

// aptSources asks apt for the host's sources of a suite, its updates and its
// security updates, as lines of a sources.list. Sources of anybody else's
// packages stay out: they have other suites.
func aptSources(ctx context.Context, suite string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(SIGNED_BY)|$(CREATED_BY)")
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil {
		return nil, &Error{Kind: ErrUnsupported, Reason: "apt's sources cannot be listed: a Debian host is needed", Err: err}
	}
	return sourcesOf(out, suite)
}

func sourcesOf(targets []byte, suite string) ([]string, error) {
	var found []string
	for line := range strings.Lines(string(targets)) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 5 || f[4] != "Packages" || !slices.Contains([]string{suite, suite + "-updates", suite + "-security"}, f[1]) {
			continue
		}
		options := ""
		if strings.HasPrefix(f[3], "/") {
			options = "[signed-by=" + f[3] + "] "
		}
		found = append(found, "deb "+options+f[0]+" "+f[1]+" "+f[2])
	}
	slices.Sort(found)
	found = slices.Compact(found)
	if len(found) == 0 {
		return nil, &Error{Kind: ErrUnsupported, Reason: "no apt source of this host has the suite", Expected: suite}
	}
	return found, nil
}

// lines calls each for every line written to it and remembers the last.
type lines struct {
	each func(string)
	part []byte
	last string
}

func (l *lines) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	for {
		line, rest, ok := bytes.Cut(l.part, []byte("\n"))
		if !ok {
			// Progress bars have no line ends; no line is worth more than this.
			if len(l.part) > 64<<10 {
				l.part = nil
			}
			return len(p), nil
		}
		if text := strings.TrimSpace(string(line)); text != "" {
			l.last = text
			l.each(text)
		}
		l.part = append([]byte(nil), rest...)
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/sandbox"
)

// The same work inside our machine, inside a raw container of the same spec, and on
// the host: a script of busybox's sh, which finds what it needs in one directory and
// writes there. Each has a directory of its own on a tmpfs of its own, and the two of a
// driver have the same binds, runtime, flags, user and limits.

// site is where a work can be done.
type site struct {
	name   string
	base   string // its directory, as the work sees it
	behind string // the same, from outside
	owner  int    // of what lies there, from outside
	run    func(ctx context.Context, script string) error
}

// sites are ours and the raw one of both drivers, and the host.
type sites struct {
	list []site // runsc ours, runsc raw, runc ours, runc raw, host
	ends []func() error
}

// insideBytes is the size of each tmpfs.
const insideBytes = 1 << 30

func (w *world) sites(ctx context.Context, img image.Image) (s *sites, err error) {
	s = &sites{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	for _, driver := range []string{"runsc", "runc"} {
		ours, id, err := w.oursInside(ctx, s, driver, img)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", driver, err)
		}
		if driver == "runsc" {
			if err := w.checkFlags(id); err != nil {
				return nil, err
			}
		}
		raw, err := w.rawInside(ctx, s, driver, img)
		if err != nil {
			return nil, fmt.Errorf("raw %s: %w", driver, err)
		}
		s.list = append(s.list, ours, raw)
	}
	host, err := w.hostInside(s)
	s.list = append(s.list, host)
	return s, err
}

// close ends all of them, the last one first.
func (s *sites) close() (err error) {
	for i := len(s.ends) - 1; i >= 0; i-- {
		err = errors.Join(err, s.ends[i]())
	}
	s.ends = nil
	reapOrphans()
	return err
}

// machineInside starts a machine of an image with room for the work.
func (w *world) machineInside(ctx context.Context, s *sites, driver string, img image.Image) (sandbox.InstanceID, string, error) {
	p := w.providers[driver]
	r := w.request(driver)
	r.RootImage, r.Profile.BaseImage = img.Reference, img.Reference
	r.Profile.ResourceLimits.MemoryBytes, r.Profile.ResourceLimits.DiskBytes = 1<<30, insideBytes
	h, err := p.Provision(ctx, r)
	if err != nil {
		return "", "", err
	}
	id := h.Value.InstanceID
	s.ends = append(s.ends, func() error { return p.Destroy(context.WithoutCancel(ctx), id) })
	_, err = p.Activate(ctx, id)
	return id, filepath.Join(w.providerDir(driver), "instances", string(id), "home", "user"), err
}

func (w *world) oursInside(ctx context.Context, s *sites, driver string, img image.Image) (site, sandbox.InstanceID, error) {
	id, behind, err := w.machineInside(ctx, s, driver, img)
	return site{
		name: driver, base: sandbox.HomePath, behind: behind, owner: native.IDBase + machine.WorkloadID,
		run: func(ctx context.Context, script string) error { return w.run(ctx, driver, id, "/bin/sh", "-c", script) },
	}, id, err
}

// rawInside starts a container out of the bundle of a machine that does nothing
// itself, so that nobody else writes where it does.
func (w *world) rawInside(ctx context.Context, s *sites, driver string, img image.Image) (site, error) {
	like, behind, err := w.machineInside(ctx, s, driver, img)
	if err != nil {
		return site{}, err
	}
	id, err := w.rawStart(ctx, driver, like)
	if err != nil {
		return site{}, err
	}
	s.ends = append(s.ends, func() error { return w.rawEnd(context.WithoutCancel(ctx), driver, id) })
	enter := w.rawRunsc("exec", "--user=10001:10001", "--cwd=/", id)
	if driver == "runc" {
		enter = w.rawRunc("exec", "--user", "10001:10001", "--cwd", "/", id)
	}
	w.rep.command(driver+" exec", append(enter[:len(enter):len(enter)], "/bin/sh", "-c", "SCRIPT"))
	return site{
		name: driver + " exec", base: sandbox.HomePath, behind: behind, owner: native.IDBase + machine.WorkloadID,
		run: func(ctx context.Context, script string) error {
			return sh(ctx, append(enter[:len(enter):len(enter)], "/bin/sh", "-c", script)...)
		},
	}, nil
}

// hostInside has the machines' busybox and user, and no machine.
func (w *world) hostInside(s *sites) (site, error) {
	base := filepath.Join(w.dir, "host")
	if err := os.Mkdir(base, 0o755); err != nil {
		return site{}, err
	}
	if err := unix.Mount("bench", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,noswap,size="+strconv.Itoa(insideBytes)); err != nil {
		return site{}, os.NewSyscallError("mount", err)
	}
	s.ends = append(s.ends, func() error { return errors.Join(unix.Unmount(base, unix.MNT_DETACH), os.Remove(base)) })
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return site{}, err
	}
	bin := filepath.Join(base, "bin")
	if err := errors.Join(os.Chown(base, machine.WorkloadID, machine.WorkloadID), os.Mkdir(bin, 0o755), copyFile(busybox, filepath.Join(bin, "busybox"))); err != nil {
		return site{}, err
	}
	for _, name := range []string{"sh", "tar", "mkdir"} {
		if err := os.Symlink("busybox", filepath.Join(bin, name)); err != nil {
			return site{}, err
		}
	}
	return site{
		name: "the host", base: base, behind: base, owner: machine.WorkloadID,
		run: func(ctx context.Context, script string) error {
			c := exec.CommandContext(ctx, filepath.Join(bin, "sh"), "-c", script)
			c.Env, c.Dir = []string{"PATH=" + bin}, "/"
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: machine.WorkloadID, Gid: machine.WorkloadID}}
			out, err := c.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%s: %w: %s", script, err, out)
			}
			return err
		},
	}, nil
}

// work is what is done at a site: out of IN, which is there before, into OUT, which is
// new each time and removed off the clock. A script names both as $IN and $OUT.
type work struct {
	what    string
	prepare func(in string) error // makes IN, as root, from outside
	script  string
	check   func(out string) error // from outside
}

// measure does the work at each site in turn.
func (s *sites) measure(ctx context.Context, w *world, k work) error {
	sides := make([]side, len(s.list))
	for i, at := range s.list {
		in, out := filepath.Join(at.behind, "in"), filepath.Join(at.behind, "out")
		if err := os.Mkdir(in, 0o755); err != nil {
			return err
		}
		if err := errors.Join(k.prepare(in), os.Chmod(at.behind, 0o777)); err != nil {
			return err
		}
		script := "IN=" + at.base + "/in; OUT=" + at.base + "/out; set -e; " + k.script
		sides[i] = func(ctx context.Context) (time.Duration, error) {
			if err := errors.Join(os.Mkdir(out, 0o755), os.Chown(out, at.owner, at.owner)); err != nil {
				return 0, err
			}
			took, err := timed(func(ctx context.Context) error { return at.run(ctx, script) })(ctx)
			if err == nil {
				err = k.check(out)
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", at.name, err)
			}
			return took, errors.Join(err, os.RemoveAll(out))
		}
	}
	got, err := interleave(ctx, min(w.n, 7), sides...)
	if err != nil {
		return err
	}
	w.rep.note("script of %s: %s", k.what, k.script)
	add := func(driver string, ours, raw int, bound float64) {
		w.rep.add(line{what: driver + ": " + k.what, unit: "ms", ours: got[ours], rawName: s.list[raw].name, raw: got[raw], bound: bound})
	}
	add("runsc", 0, 1, 1.3)
	add("runsc", 0, 3, 0)
	add("runsc", 0, 4, 0)
	add("runc", 2, 3, 0)
	add("runc", 2, 4, 0)
	return nil
}

// rawStart runs a raw container that sleeps, out of the bundle of a machine, and
// returns its name.
func (w *world) rawStart(ctx context.Context, driver string, like sandbox.InstanceID) (string, error) {
	w.raws++
	id := fmt.Sprintf("rawsleep%024d", w.raws)
	bundle, err := w.rawBundle(driver, like, id, "/bin/sleep", "100000")
	if err != nil {
		return "", err
	}
	argv := w.rawRunsc("run", "--detach", "--bundle="+bundle, id)
	if driver == "runc" {
		argv = w.rawRunc("run", "--detach", "--bundle", bundle, id)
	}
	w.rep.command(driver+" run", argv)
	if err := shQuiet(ctx, argv...); err != nil {
		return "", errors.Join(err, w.rawEnd(context.WithoutCancel(ctx), driver, id))
	}
	return id, nil
}

func (w *world) rawEnd(ctx context.Context, driver, id string) error {
	if driver == "runc" {
		return shQuiet(ctx, w.rawRunc("delete", "--force", id)...)
	}
	return shQuiet(ctx, w.rawRunsc("delete", "--force", id)...)
}

// files counts the regular files below a directory.
func files(dir string) (n int, err error) {
	err = filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			n++
		}
		return err
	})
	return n, err
}

// exactly checks that a work left so many files.
func exactly(want int) func(out string) error {
	return func(out string) error {
		n, err := files(out)
		if err == nil && n != want {
			err = fmt.Errorf("%d files, not %d", n, want)
		}
		return err
	}
}

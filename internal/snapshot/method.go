package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/snapshot/volume"
)

// Method is how a host keeps snapshots. The better ones come first.
type Method string

// The methods.
const (
	// MethodShared: an image, whose copies share their blocks (btrfs, XFS).
	MethodShared Method = "image_shared"
	// MethodCopied: an image, whose bytes are copied, holes left out.
	MethodCopied Method = "image_copied"
	// MethodTree: a stream of the files.
	MethodTree Method = "tree"
)

// Choice is what a host offers, and why nothing better.
type Choice struct {
	Method Method
	Form   Form // what a session's files are captured as
	Reason string
}

// remembered is the file in which a directory's method is noted, with everything on
// which that depends. Another boot, kernel or disk is another answer.
const remembered = ".snapshot-method"

// Choose tries what a host can do in dir, the directory where sessions and
// snapshots are to lie: it makes, mounts, freezes and looks over an image there. That
// takes some 50 ms, so what worked is noted in dir, until the next boot. What can go
// within a boot, programs and loop devices, is looked for each time. What killed
// tries left in dir is removed.
// Errors: host errors; where images cannot be had there is still a choice.
func Choose(ctx context.Context, dir string) (Choice, error) {
	if err := volume.Sweep(dir); err != nil {
		return Choice{}, err
	}
	note, err := circumstances(dir)
	if err != nil {
		return Choice{}, err
	}
	err = volume.Available()
	if err == nil {
		// It is compared whole: a note that was cut, or of something else, is none.
		have, _ := os.ReadFile(filepath.Join(dir, remembered))
		for _, m := range []Method{MethodShared, MethodCopied} {
			if string(have) == note+string(m)+"\n" {
				return imageChoice(dir, m), nil
			}
		}
		err = volume.Probe(ctx, dir)
	}
	switch {
	case ctx.Err() != nil:
		return Choice{}, ctx.Err()
	case errors.Is(err, volume.ErrUnavailable), errors.Is(err, os.ErrPermission):
		return Choice{MethodTree, FormTree, err.Error()}, nil
	case err != nil:
		return Choice{}, err
	}
	method := MethodCopied
	shares, err := sharing(dir)
	if err != nil {
		return Choice{}, err
	}
	if shares {
		method = MethodShared
	}
	// Whoever cannot note it tries again.
	_ = os.WriteFile(filepath.Join(dir, remembered), []byte(note+string(method)+"\n"), 0o600)
	return imageChoice(dir, method), nil
}

// circumstances are those of a choice, line by line.
func circumstances(dir string) (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		return "", os.NewSyscallError("uname", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	return fmt.Sprintf("checkfu.snapshot-method.v1\nboot %skernel %s\ndevice %d\n", boot, unix.ByteSliceToString(kernel.Release[:]), st.Dev), nil
}

func imageChoice(dir string, m Method) Choice {
	reason := "the filesystem of " + dir + " does not share the blocks of copied files (btrfs and XFS do)"
	if m == MethodShared {
		reason = "the filesystem of " + dir + " shares the blocks of copied files"
	}
	return Choice{m, FormImage, reason}
}

// sharing tries to share one block between two files of dir.
func sharing(dir string) (shares bool, err error) {
	var files [2]*os.File
	for i := range files {
		// Without a name: whoever is killed here leaves nothing.
		f, err := os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE, 0o600)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) {
			return false, nil // nor does btrfs or XFS lack those
		}
		if err != nil {
			return false, err
		}
		defer f.Close()
		files[i] = f
	}
	if _, err := files[0].Write(make([]byte, block)); err != nil {
		return false, err
	}
	return share(files[0], files[1])
}

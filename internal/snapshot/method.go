package snapshot

import (
	"context"
	"errors"
	"os"

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

// Choose tries what a host can do in dir, the directory where sessions and
// snapshots are to lie, and leaves nothing there. It takes some 30 ms.
// Errors: host errors; where images cannot be had there is still a choice.
func Choose(ctx context.Context, dir string) (Choice, error) {
	err := volume.Probe(ctx, dir)
	switch {
	case ctx.Err() != nil:
		return Choice{}, ctx.Err()
	case errors.Is(err, volume.ErrUnavailable), errors.Is(err, os.ErrPermission):
		return Choice{MethodTree, FormTree, err.Error()}, nil
	case err != nil:
		return Choice{}, err
	}
	shares, err := sharing(dir)
	if err != nil {
		return Choice{}, err
	}
	if shares {
		return Choice{MethodShared, FormImage, "the filesystem of " + dir + " shares the blocks of copied files"}, nil
	}
	return Choice{MethodCopied, FormImage, "the filesystem of " + dir + " does not share the blocks of copied files (btrfs and XFS do)"}, nil
}

// sharing tries to share one block between two files of dir.
func sharing(dir string) (shares bool, err error) {
	var files [2]*os.File
	for i := range files {
		f, err := os.CreateTemp(dir, ".share-probe-")
		if err != nil {
			return false, err
		}
		defer f.Close()
		if err := os.Remove(f.Name()); err != nil {
			return false, err
		}
		files[i] = f
	}
	if _, err := files[0].Write(make([]byte, block)); err != nil {
		return false, err
	}
	return share(files[0], files[1])
}

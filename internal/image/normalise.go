package image

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// workloadID is the user and group id of the workload in a base image.
const workloadID = 10001

// baseUsers are the lines that a base image's files of accounts end with.
var baseUsers = map[string]string{
	"etc/passwd": fmt.Sprintf("checkfu:x:%d:%[1]d:checkfu:/home/checkfu:/bin/sh\n", workloadID),
	"etc/group":  fmt.Sprintf("checkfu:x:%d:\n", workloadID),
}

// baseDirs are made in a base image for the workload, which owns them.
var baseDirs = []string{"home/checkfu", "workspace", "mnt/session", "mnt/session/outputs"}

// volatile are files that say something of the host or the hour of the build.
// Sources of apt are among them: they name the builder's mirror, and in a
// read-only root nobody can install anything.
var volatile = []string{
	"etc/hostname", "etc/resolv.conf", "etc/machine-id", "var/lib/dbus/machine-id",
	"etc/apt/sources.list", "etc/apt/sources.list.d/", "etc/apt/apt.conf.d/99mmdebstrap",
	"var/log/", "var/cache/", "var/lib/apt/lists/", "tmp/", "var/tmp/", "run/", "dev/",
}

// normalised stages the tar read from r with all that changes from build to
// build left out.
func (st *stage) normalised(ctx context.Context, r io.Reader) (v1.Hash, int64, error) {
	pr, pw := io.Pipe()
	go func() { pw.CloseWithError(normalise(ctx, r, pw, BaseEpoch)) }()
	defer pr.Close()
	return st.blob(ctx, pr, st.store.opt.MaxBytes, nil)
}

func normalise(ctx context.Context, r io.Reader, w io.Writer, epoch time.Time) error {
	in, out := tar.NewReader(r), tar.NewWriter(w)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return malformed("", err)
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if unwanted(name, h.Typeflag) {
			continue
		}
		body := io.Reader(in)
		if more, ok := baseUsers[name]; ok && h.Typeflag == tar.TypeReg {
			body = io.MultiReader(in, strings.NewReader(more))
			h.Size += int64(len(more))
		}
		clean := tar.Header{
			Typeflag: h.Typeflag, Name: "./" + name, Linkname: h.Linkname, Size: h.Size,
			Mode: h.Mode, Uid: h.Uid, Gid: h.Gid, ModTime: h.ModTime.Truncate(time.Second),
			Format: tar.FormatPAX,
		}
		if h.Typeflag == tar.TypeDir && name != "" {
			clean.Name += "/"
		}
		if clean.ModTime.After(epoch) {
			clean.ModTime = epoch
		}
		if err := out.WriteHeader(&clean); err != nil {
			return err
		}
		if _, err := io.Copy(out, body); err != nil {
			return malformed(h.Name, err)
		}
	}
	for _, d := range baseDirs {
		h := tar.Header{Typeflag: tar.TypeDir, Name: "./" + d + "/", Mode: 0o755, Uid: workloadID, Gid: workloadID, ModTime: epoch, Format: tar.FormatPAX}
		if err := out.WriteHeader(&h); err != nil {
			return err
		}
	}
	return out.Close()
}

// unwanted reports whether a file is volatile or special. Directories stay:
// programs expect them.
func unwanted(name string, kind byte) bool {
	switch kind {
	case tar.TypeDir:
		return below(name, "var/lib/apt/lists/") || below(name, "run/")
	case tar.TypeReg, tar.TypeSymlink, tar.TypeLink:
	default:
		return true
	}
	for _, v := range volatile {
		if name == v || strings.HasSuffix(v, "/") && below(name, v) {
			return true
		}
	}
	return false
}

func below(name, dir string) bool {
	return strings.HasPrefix(name, dir) && name != strings.TrimSuffix(dir, "/")
}

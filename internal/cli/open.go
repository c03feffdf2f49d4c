package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/sandbox"
)

// defaultImage is the name of the image that is used where none is named.
const defaultImage = "base"

// open makes a provider ready and settles the image. Of o it takes all but Dir and
// Images: those are the state directory's. What it returns last closes both.
func (a *app) open(ctx context.Context, name, ref string, bar *progress, o all.Options) (*all.Opened, func(), error) {
	if name == all.Memory {
		opened, err := all.Open(name, o)
		err = routeError(err)
		if err == nil && ref != "" {
			if sandbox.ImageDigest(ref) == "" {
				return nil, nil, argument.Unexpected("--image", "NAME@sha256:DIGEST with the memory provider, which has no store", ref)
			}
			opened.Image = ref
		}
		return opened, func() {}, err
	}
	dir, err := a.usableState()
	if err != nil {
		return nil, nil, err
	}
	store, err := openStore(dir, bar)
	if err != nil {
		return nil, nil, err
	}
	o.Dir, o.Images = dir, store
	opened, err := all.Open(name, o)
	if err != nil {
		return nil, nil, routeError(err)
	}
	closeProvider := func() {
		if err := opened.Close(); err != nil {
			a.complain(err)
		}
	}
	opened.Image, err = resolveImage(ctx, store, ref)
	if err != nil {
		// Who has no image yet is told first what an image would not help.
		if lacks := opened.Host.Lacks(ctx); ref == "" && len(lacks) > 0 {
			err = fmt.Errorf("%s cannot run here: %s: %s; checkfu doctor says what else is missing", name, lacks[0].What, lacks[0].Remedy)
		}
		closeProvider()
		return nil, nil, err
	}
	return opened, closeProvider, nil
}

// routeError names the flag that asked for what a provider does not have.
func routeError(err error) error {
	if no, ok := errors.AsType[*all.RouteError](err); ok {
		return argument.Wrong("--model: %v", no)
	}
	return err
}

func openStore(dir string, bar *progress) (*image.Store, error) {
	return image.Open(filepath.Join(dir, "images"), image.Options{IDBase: native.IDBase, Progress: bar.image})
}

// resolveImage gives the reference by which the provider finds the image: its
// name with the digest of what is really run.
func resolveImage(ctx context.Context, store *image.Store, ref string) (string, error) {
	wanted := ref
	if wanted == "" {
		wanted = defaultImage
	}
	found, err := store.Resolve(ctx, wanted)
	if errors.Is(err, image.ErrNotFound) {
		if ref == "" {
			return "", argument.Wrong("--image: expected an image, got none: there is no image called %q yet; make one with: checkfu image build-base", defaultImage)
		}
		return "", argument.Unexpected("--image", "an image of the store (see checkfu image ls)", ref)
	}
	if err != nil {
		return "", err
	}
	name, _, _ := strings.Cut(found.Reference, "@")
	return name + "@" + found.Digest, nil
}

// checkOutDir refuses an output directory that cannot be made or entered.
func checkOutDir(path string) error {
	const flag, expected = "--out", "a directory that can be written, or made"
	if strings.IndexByte(path, 0) >= 0 {
		return argument.Unexpected(flag, expected, path)
	}
	for dir := filepath.Clean(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		switch {
		case err == nil && info.IsDir():
			if unix.Access(dir, unix.W_OK|unix.X_OK) != nil {
				return argument.Unexpected(flag, expected, path)
			}
			return nil
		case err == nil || !errors.Is(err, os.ErrNotExist) || dir == filepath.Dir(dir):
			return argument.Unexpected(flag, expected, path)
		}
		if _, err := os.Lstat(dir); err == nil { // a link that leads nowhere
			return argument.Unexpected(flag, expected, path)
		}
	}
}

// checkOutBeside refuses an output directory in which the command could
// overwrite the repository that it must not touch, or its git directory.
func checkOutBeside(out string, repo *runner.Repo) error {
	at, err := filepath.Abs(out)
	if err != nil {
		return argument.Unexpected("--out", "a directory", out)
	}
	made := "" // what is not there yet
	for {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			at = filepath.Join(real, made)
			break
		}
		if at == filepath.Dir(at) {
			return argument.Unexpected("--out", "a directory", out)
		}
		at, made = filepath.Dir(at), filepath.Join(filepath.Base(at), made)
	}
	for e := range strings.SplitSeq(at, "/") {
		if strings.EqualFold(e, ".git") {
			return argument.Unexpected("--out", "a directory outside .git", out)
		}
	}
	if repo == nil {
		return nil
	}
	top, err := filepath.Abs(repo.Dir)
	if err == nil {
		top, err = filepath.EvalSymlinks(top)
	}
	if err != nil {
		return argument.Unexpected("--repo", "a directory", repo.Dir)
	}
	if strings.HasPrefix(top+"/", strings.TrimSuffix(at, "/")+"/") {
		return argument.Unexpected("--out", "a directory of its own and not the repository, which stays as it is", out)
	}
	return nil
}

// explain names the flag that is to blame, where one is.
func explain(err error, record *runner.Record) error {
	unmet := runner.Unmet(err)
	if record.Cause == runner.CauseInterrupted && record.Disposition != "" {
		return errors.New("interrupted")
	}
	var invalid *sandbox.Invalid
	if errors.As(err, &invalid) && invalid.Field == runner.DiskField {
		return argument.Unexpected("--disk", invalid.Expected, invalid.Got)
	}
	if source, ok := errors.AsType[*runner.SourceError](err); ok && runner.BadInput(err) {
		flag := "--mount"
		if source.Kind == sandbox.MountGit {
			flag = "--repo"
		}
		return argument.Wrong("%s: %v", flag, source)
	}
	if unmet == nil || !runner.BadInput(err) {
		return err
	}
	flag := map[sandbox.Requirement]string{
		sandbox.RequireBaseImage: "--image", sandbox.RequireNetworkPolicy: "--network", sandbox.RequireMounts: "--mount",
		sandbox.RequireRetention: "--keep",
	}[unmet.Requirement]
	axis, _, _ := strings.Cut(unmet.Expected, " ")
	if f, ok := map[string]string{
		"cpu_millis": "--cpus", "memory_bytes": "--memory", "disk_bytes": "--disk",
		"max_processes": "--pids", "max_duration_seconds": "--timeout",
	}[axis]; ok && unmet.Requirement == sandbox.RequireResources {
		flag = f
	}
	if flag == "" {
		flag = "--provider"
	}
	return argument.Wrong("%s: expected %s (what the provider offers), got %q", flag, inUnits(unmet.Actual), inUnits(unmet.Expected))
}

// inUnits turns "memory_bytes 33554432 to 4398046511104" into "32.0MiB to
// 4.0TiB"; other text stays as it is.
func inUnits(s string) string {
	axis, rest, _ := strings.Cut(s, " ")
	format, ok := map[string]func(int64) string{
		"memory_bytes": argument.Bytes, "disk_bytes": argument.Bytes,
		"cpu_millis":           func(n int64) string { return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64) },
		"max_processes":        func(n int64) string { return strconv.FormatInt(n, 10) },
		"max_duration_seconds": func(n int64) string { return strconv.FormatInt(n, 10) + "s" },
	}[axis]
	if !ok {
		return s
	}
	words := strings.Fields(rest)
	for i, word := range words {
		if n, err := strconv.ParseInt(word, 10, 64); err == nil {
			words[i] = strings.ReplaceAll(format(n), " ", "")
		}
	}
	return strings.Join(words, " ")
}

// notStarted is the provider's own word on why a command did not start, without
// the names of the contract.
func notStarted(record *runner.Record) (why, message string) {
	for _, f := range record.Failures {
		if f.Phase == runner.PhaseOpen {
			if _, why, ok := strings.Cut(f.Message, strconv.Quote(sandbox.ReasonStartFailed)); ok {
				return strings.TrimLeft(why, ": "), f.Message
			}
		}
	}
	return "", ""
}

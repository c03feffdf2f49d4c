package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/contain"
	"github.com/checkfu/checkfu/internal/mount"
	"github.com/checkfu/checkfu/sandbox"
)

// Why a leaf of the output tree is not in the output directory, beside the
// refusals of the contract and of package contain.
const (
	refusedNoDirectory = "no_output_directory" // the Spec names none
	refusedChanged     = "changed"             // not the bytes that the listing named
	refusedName        = "refused_name"        // git on this host would take it for a repository's own files
)

// Missed reports whether the output is a file that should have been copied and was not.
// Links, special files and git's names never are.
func (o Output) Missed() bool {
	return o.Type == sandbox.LeafRegular && o.Refused != "" && o.Refused != refusedName
}

// outputs copies the regular files of the output tree into the output
// directory. The names come from the workload, so every file is written by
// descriptor below that directory: a link that lies there is never followed,
// and nothing outside is touched. Links and special files are named only.
func (s *session) outputs(ctx context.Context) error {
	leaves, err := s.list(ctx, sandbox.OutputPath)
	if err != nil {
		return err
	}
	wanted := membersOf(leaves)
	var to *contain.Root
	if s.spec.OutDir != "" && len(wanted) > 0 {
		if to, err = openOutDir(s.spec.OutDir); err != nil {
			return err
		}
		defer to.Close()
	}
	var names []string
	for _, l := range leaves {
		names = append(names, l.Path)
	}
	files, folder := s.files(ctx, sandbox.OutputPath, wanted), into(to, names)
	var failures []error
	for _, l := range leaves {
		o := Output{Path: text(l.Path), PathHex: asHex(l.Path), Type: l.Type, Size: l.Size, Digest: l.Digest}
		var err error
		o.Refused, err = s.output(ctx, l, files, folder, l.Path)
		if err != nil {
			failures = append(failures, err)
		}
		s.record.Outputs = append(s.record.Outputs, o)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if len(failures) > 0 {
		return fmt.Errorf("output directory %s: %w", s.spec.OutDir, errors.Join(failures...))
	}
	return nil
}

// output copies one leaf to a name in the folder, or says why not. What the workload
// did is a refusal; what this host could not do is an error too.
func (s *session) output(ctx context.Context, l sandbox.Leaf, files *files, to *folder, name string) (string, error) {
	switch {
	case l.Type != sandbox.LeafRegular:
		return string(sandbox.RefusedNotRegular), nil
	// .git/hooks and .git/config run commands, also under another name.
	case mount.Reserved(files.root), mount.Reserved(l.Path), to.reserves(name):
		return refusedName, nil
	case l.Size > sandbox.MaxFileBytes && to.large == nil:
		return string(sandbox.RefusedTooLarge), nil
	case to.root == nil:
		return refusedNoDirectory, nil
	}
	mode := os.FileMode(0o644)
	if l.Executable {
		mode = 0o755
	}
	if l.Size > sandbox.MaxFileBytes {
		return s.large(ctx, files.root, l, to, name, mode)
	}
	r, err := files.read(l.Path)
	if err != nil || r.Refused != "" {
		return string(r.Refused), err
	}
	if canonical.Digest(r.Content) != string(l.Digest) {
		return refusedChanged, nil
	}
	if err := to.root.WriteFile(ctx, name, r.Content, mode); err != nil {
		var refused contain.Refusal
		if errors.As(err, &refused) {
			return string(refused), err
		}
		return string(contain.ErrFailed), err
	}
	return "", nil
}

// openOutDir makes the directory where it is missing. A link on the way to it
// is the user's own.
func openOutDir(dir string) (*contain.Root, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	return contain.Open(real, contain.Options{})
}

package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// checkBound is how long the program may take: some 30 ms for 10,000 files, and a
// disk that answers.
const checkBound = 2 * time.Minute

// Check frees, in an image that is not mounted, what nobody can reach: files that
// were open and had no name any more when it was copied. Without a journal the
// kernel does not know of them. Where there are none, which takes a look at each
// file, it does nothing more. A file that is no filesystem stays as it is: no mount
// will take it.
//
// Errors: ErrUnavailable; ErrDamaged; the context's; one with what was found where
// more is wrong than that, which is not repaired; host errors.
func Check(ctx context.Context, image string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if found, err := hasNameless(image); err != nil || !found {
		return err
	}
	path, err := find(checker)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, checkBound)
	defer cancel()
	// -p does what cannot lose anything, and fails at anything else.
	cmd := exec.CommandContext(ctx, path, "-f", "-p", "-E", "fixes_only", image)
	cmd.Env = environment("E2FSCK_CONFIG=/dev/null")
	out, err := cmd.CombinedOutput()
	const corrected = 1
	if e := (*exec.ExitError)(nil); errors.As(err, &e) && e.ExitCode() == corrected {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s %s: %w", checker, image, ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", checker, image, err, strings.TrimSpace(string(out)))
	}
	return nil
}

func hasNameless(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	s, err := readSuper(f)
	if errors.Is(err, errNoFilesystem) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return nameless(f, &s, info.Size())
}

// environment is what a child of ours sees, whatever we see.
func environment(more string) []string {
	return []string{"LC_ALL=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", more}
}

package cli

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/cli/argument"
)

// diskUse is what the disk gives to each kind of a state directory, in bytes. What
// machines mount is not on it, and blocks that files share count once for each.
type diskUse struct {
	Images    int64 `json:"images"`
	Runs      int64 `json:"runs"`
	Sessions  int64 `json:"sessions"`
	Snapshots int64 `json:"snapshots"`
	Machines  int64 `json:"machines"`
	Other     int64 `json:"other"`
}

func diskUseOf(dir string) (u diskUse) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		switch name := e.Name(); {
		case name == "images":
			u.Images += onDisk(at)
		case name == "runs":
			u.Runs += onDisk(at)
		case name == "sessions":
			u.Sessions += onDisk(at)
		case strings.HasPrefix(name, "native-"):
			kept := onDisk(filepath.Join(at, "snapshots"))
			u.Snapshots += kept
			u.Machines += onDisk(at) - kept
		default:
			u.Other += onDisk(at)
		}
	}
	return u
}

// onDisk is what the disk gives to all below a path, on its own filesystem; each
// file once, however many names it has. What goes meanwhile does not count.
func onDisk(root string) (n int64) {
	type inode struct{ dev, ino uint64 }
	seen := map[inode]bool{}
	var top unix.Stat_t
	if unix.Lstat(root, &top) != nil {
		return 0
	}
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir
		}
		var st unix.Stat_t
		if unix.Lstat(path, &st) != nil {
			return nil
		}
		if st.Dev != top.Dev {
			if d.IsDir() {
				return fs.SkipDir // a machine's home is memory, or an image that is counted
			}
			return nil
		}
		if st.Nlink > 1 && !d.IsDir() {
			if seen[inode{st.Dev, st.Ino}] {
				return nil
			}
			seen[inode{st.Dev, st.Ino}] = true
		}
		n += st.Blocks * 512
		return nil
	})
	return n
}

// print shows both sides in a table; of a dry run only what there is.
func (u diskUse) print(w io.Writer, after diskUse, dry bool) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	if dry {
		fmt.Fprintln(t, "KIND\tDISK")
	} else {
		fmt.Fprintln(t, "KIND\tBEFORE\tAFTER")
	}
	var sums [2]int64
	line := func(kind string, a, b int64) {
		sums[0], sums[1] = sums[0]+a, sums[1]+b
		if dry {
			fmt.Fprintf(t, "%s\t%s\n", kind, argument.Bytes(a))
		} else {
			fmt.Fprintf(t, "%s\t%s\t%s\n", kind, argument.Bytes(a), argument.Bytes(b))
		}
	}
	line("images", u.Images, after.Images)
	line("runs", u.Runs, after.Runs)
	line("sessions", u.Sessions, after.Sessions)
	line("snapshots", u.Snapshots, after.Snapshots)
	line("machines", u.Machines, after.Machines)
	line("other", u.Other, after.Other)
	line("all", sums[0], sums[1])
	return t.Flush()
}

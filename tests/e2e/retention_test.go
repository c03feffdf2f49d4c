package e2e

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/egress/canary"
)

// planting writes its mark wherever a workload can: into files and their names, in
// the project, the home and for a while; into memory, arguments and environment of a
// process that stays; through standard input and to both outputs.
const planting = `set -e
m=$MARK
for d in /workspace/repo "$HOME" /tmp; do mkdir "$d/$m-dir"; echo "$m-file" >"$d/$m-dir/$m"; echo "$m-gone" >"$d/gone-$m"; rm "$d/gone-$m"; done
cat >"$HOME/stdin"
grep -q "$m-stdin" "$HOME/stdin"
sh -c 'x=$MARK-memory; while :; do sleep 1; done' "$m-argument" </dev/null >/dev/null 2>&1 &
echo "$m-stdout"; echo "$m-stderr" >&2
sync`

// plant has a session's machine full of the mark, and shows that the search finds it
// there, in its memory.
func plant(t *testing.T, id, mark string) {
	t.Helper()
	cmd := command(t, "session", "exec", id, "--env", "MARK="+mark, "--", "sh", "-c", planting, mark+"-name")
	cmd.Stdin = strings.NewReader(mark + "-stdin\n")
	if r := finish(t, cmd); r.code != 0 || !strings.Contains(r.stdout, mark) || !strings.Contains(r.stderr, mark) {
		t.Fatalf("%+v", r)
	}
	eventually(t, "the mark is found in the machine", func() bool { return len(holders(t, mark)) > 0 })
}

// TestZeroRetention: once a session without --keep is removed, nothing on this host
// has a byte of it: no process, in memory, environment or arguments, no file below the
// state directory, nor what was written meanwhile to the places for temporary files
// and logs. The control is a machine that is kept: there the same search finds it,
// in the raw blocks of its snapshot, until that is removed too.
func TestZeroRetention(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // what lies in the host's is of others, and much
	repo := repository(t, map[string]string{"a.txt": "a\n"})
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			began := time.Now()
			mark := "cfu-retention-" + rand.Text()
			id := session(t, provider, repo)
			plant(t, id, mark)
			mustRun(t, "session", "rm", id)
			nothingLeft(t)
			for _, found := range append(holders(t, mark), written(t, mark, began)...) {
				t.Errorf("%s retained: %s", provider, found)
			}

			mark = "cfu-retention-" + rand.Text()
			id = session(t, provider, repo, "--keep")
			plant(t, id, mark)
			mustRun(t, "session", "pause", id)
			if found := holders(t, mark); len(found) > 0 {
				t.Errorf("a paused session is in memory: %v", found)
			}
			if found := written(t, mark, began); len(found) == 0 {
				t.Error("what is kept is not found, so nothing was shown")
			}
			mustRun(t, "session", "rm", id)
			nothingLeft(t)
			for _, found := range append(holders(t, mark), written(t, mark, began)...) {
				t.Errorf("%s kept what was removed: %s", provider, found)
			}
		})
	}
}

// holders names the processes of this host, but for this one, which have the mark.
func holders(t *testing.T, mark string) (found []string) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if pid == os.Getpid() || len(line) == 0 { // a thread of the kernel, or gone
			continue
		}
		// One that ends meanwhile is gone at the latest after some more looks.
		for tries := 0; ; tries++ {
			hits, err := canary.Scan(bounded(t), pid, []byte(mark))
			if err == nil {
				if hits.Total() > 0 {
					found = append(found, fmt.Sprintf("process %q: %+v", line, hits))
				}
				break
			}
			if _, gone := os.Stat(filepath.Join(dir, "exe")); gone != nil {
				break
			}
			if tries == 100 {
				t.Errorf("could not be searched: %v", err)
				break
			}
			time.Sleep(10 * time.Millisecond) // not a wait: the kernel tells nobody
		}
	}
	return found
}

// written names the files that have the mark in their name or their bytes: all below
// the state directory and that for temporary files, and elsewhere those written since
// began, in /tmp at its top only.
func written(t *testing.T, mark string, began time.Time) (found []string) {
	t.Helper()
	for _, root := range []string{state, os.TempDir(), "/tmp", "/var/tmp", "/var/log", "/var/lib/checkfu", "/run", "/dev/shm"} {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return nil // gone meanwhile, or not there
			}
			if strings.Contains(e.Name(), mark) {
				found = append(found, "name "+path)
			}
			if e.IsDir() && filepath.Dir(path) == "/tmp" {
				return fs.SkipDir
			}
			info, err := e.Info()
			if err != nil || !info.Mode().IsRegular() || root != state && root != os.TempDir() && info.ModTime().Before(began.Add(-time.Second)) {
				return nil
			}
			if has, err := contains(path, mark); has {
				found = append(found, "file "+path)
			} else if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("could not be searched: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	return found
}

// contains reads a whole file, its holes as well.
func contains(path, mark string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	buf, kept := make([]byte, 1<<20), 0
	for {
		n, err := f.Read(buf[kept:])
		if bytes.Contains(buf[:kept+n], []byte(mark)) {
			return true, nil
		}
		if err == io.EOF {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		end := kept + n
		kept = min(end, len(mark)-1)
		copy(buf, buf[end-kept:end])
	}
}

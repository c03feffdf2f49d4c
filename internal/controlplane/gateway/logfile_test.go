package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// However much is written, and by however many: two files of bounded size hold the
// newest lines, each of them whole and in order.
func TestLogFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func() *LogFile {
		t.Helper()
		l, err := OpenLog(path)
		if err != nil {
			t.Fatal(err)
		}
		l.most = 100
		return l
	}
	read := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	l := open()
	write := func(line string) {
		t.Helper()
		if n, err := l.Write([]byte(line)); err != nil || n != len(line) {
			t.Fatalf("%d, %v", n, err)
		}
	}
	write("line 0\n")
	if got := read(path); got != "before\nline 0\n" {
		t.Errorf("what was there is gone: %q", got)
	}
	for n := 1; n < 1000; n++ {
		write(fmt.Sprintf("line %d\n", n))
		if n%100 == 50 { // as where the gateway begins again
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l = open()
		}
	}
	old, now := read(path+earlier), read(path)
	lines := strings.Split(strings.TrimSuffix(old+now, "\n"), "\n")
	first := 1000 - len(lines)
	for i, line := range lines {
		if line != fmt.Sprintf("line %d", first+i) {
			t.Fatalf("%q at %d of %q", line, i, lines)
		}
	}
	if len(old) > 100 || len(now) > 100 || len(old) <= 90 {
		t.Errorf("%d and %d bytes", len(old), len(now))
	}
	for _, path := range []string{path, path + earlier} {
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
	}

	if err := os.Truncate(path, 0); err != nil { // by what copies and truncates
		t.Fatal(err)
	}
	write("after\n")
	if got := read(path+earlier) + read(path); got != old+"after\n" {
		t.Errorf("%q", got)
	}

	long := strings.Repeat("x", 300) + "\n"
	write(long)
	if read(path) != long {
		t.Error("a line longer than a file has none for itself")
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				_, _ = l.Write([]byte("whole\n"))
			}
		})
	}
	all.Wait()
	if rest := strings.ReplaceAll(read(path+earlier)+read(path), "whole\n", ""); rest != "" && rest != long {
		t.Errorf("%q", rest)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 2 {
		t.Errorf("%v, %v", left, err)
	}
}

// A log that cannot go on says so, and no link is followed.
func TestLogFile_Faults(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLog(filepath.Join(dir, "link")); err == nil {
		t.Error("it followed a link")
	}
	path := filepath.Join(dir, "log")
	l, err := OpenLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.most = 10
	if _, err := l.Write([]byte("eight by\n")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(path+earlier, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Write([]byte("more\n")); err == nil || n != 0 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

package mount

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

const oid = "5626abf0f72e58d7a153368ba57db4c673c0e171"

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		in string
		ok bool
	}{
		{"100644 blob " + oid + "\ta\tb", true},
		{"160000 commit " + oid + "\ta", true},
		{"040000 tree " + oid + "\t\xff", true},
		{"100644 tree " + oid + "\ta", false},
		{"100644 blob " + oid + "\t", false},
		{"100644 blob " + oid + " a", false},
		{"10064 blob " + oid + "\ta", false},
		{"100648 blob " + oid + "\ta", false},
		{"100644 blob " + oid[1:] + "\ta", false},
		{"100644 blob " + strings.ToUpper(oid) + "\ta", false},
		{"100644  " + oid + "\ta", false},
		{"", false},
	} {
		if e, err := parseTree(tt.in); (err == nil) != tt.ok {
			t.Errorf("tree %q: got %+v, %v", tt.in, e, err)
		}
		index := "H " + strings.Replace(strings.Replace(tt.in, "blob ", "", 1), oid+"\t", oid+" 2\t", 1)
		if strings.Contains(tt.in, "blob "+oid+"\ta") {
			if e, err := parseIndex(index); (err == nil) != tt.ok || err == nil && e.stage != 2 {
				t.Errorf("index %q: got %+v, %v", index, e, err)
			}
		}
	}
	for _, in := range []string{"HH 100644 " + oid + " 0\ta", "H 100644 " + oid + " 4\ta", "H 100644 " + oid + " 00\ta", "100644 " + oid + " 0\ta"} {
		if e, err := parseIndex(in); err == nil {
			t.Errorf("index %q: got %+v", in, e)
		}
	}
	if e, err := parseIndex("S 100755 " + oid + " 0\ta"); err != nil || !e.skip || !e.executable() {
		t.Errorf("got %+v, %v", e, err)
	}
}

func TestRecords(t *testing.T) {
	read := func(s string, limit int) (got []string, err error) {
		err = records(bufio.NewReader(strings.NewReader(s)), limit, func(s string) error {
			got = append(got, s)
			return nil
		})
		return got, err
	}
	if got, err := read("a\x00b\nc\x00", 2); err != nil || len(got) != 2 || got[1] != "b\nc" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := read("a\x00b", 2); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("broken off: got %v", err)
	}
	if _, err := read("a\x00b\x00c\x00", 2); !errors.Is(err, ErrTooMany) {
		t.Errorf("too many: got %v", err)
	}
	if _, err := read(strings.Repeat("x", 1<<17)+"\x00", 2); err == nil {
		t.Error("a record of 128 KiB was taken")
	}
}

func TestLFSPointer(t *testing.T) {
	const v = "version https://git-lfs.github.com/spec/v1\n"
	hex := strings.Repeat("ab", 32)
	for _, tt := range []struct {
		in string
		ok bool
	}{
		{v + "oid sha256:" + hex + "\nsize 12\n", true},
		{v + "ext-0-foo sha256:" + hex + "\noid sha256:" + hex + "\nsize 0\n", true},
		{v + "oid sha256:" + hex + "\nsize -1\n", false},
		{v + "oid sha256:" + hex + "\nsize 99999999999999999999\n", false},
		{v + "oid sha256:" + hex + "\nsize 1\nsize 2\n", false},
		{v + "oid sha256:" + hex[2:] + "\nsize 1\n", false},
		{v + "oid md5:" + hex + "\nsize 1\n", false},
		{v + "oid sha256:" + hex + "\n", false},
		{v + "size 1\n", false},
		{v, false},
		{"", false},
		{"oid sha256:" + hex + "\nsize 12\n" + v, false},
		{v + "oid sha256:" + hex + "\nsize 12\n" + strings.Repeat("x", 1024), false},
	} {
		if _, _, ok := lfsPointer([]byte(tt.in)); ok != tt.ok {
			t.Errorf("%q: want %v", tt.in, tt.ok)
		}
	}
}

func FuzzRecords(f *testing.F) {
	f.Add("100644 blob " + oid + "\ta\x00H 100644 " + oid + " 0\tb\x00")
	f.Add("100644 blob \x00\x00")
	f.Fuzz(func(t *testing.T, s string) {
		err := records(bufio.NewReader(strings.NewReader(s)), 100, func(s string) error {
			if e, err := parseTree(s); err == nil {
				kind := map[string]string{modeTree: "tree", modeSubmodule: "commit"}[e.mode]
				if kind == "" {
					kind = "blob"
				}
				if back := fmt.Sprintf("%s %s %s\t%s", e.mode, kind, e.oid, e.path); back != s {
					t.Errorf("tree %q reads as %q", s, back)
				}
			}
			if e, err := parseIndex(s); err == nil {
				if back := fmt.Sprintf("%s %s %d\t%s", e.mode, e.oid, e.stage, e.path); back != s[2:] {
					t.Errorf("index %q reads as %q", s, back)
				}
			}
			return nil
		})
		if err == nil && s != "" && s[len(s)-1] != 0 {
			t.Errorf("%q has no end and was taken", s)
		}
	})
}

func FuzzLFSPointer(f *testing.F) {
	f.Add([]byte("version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("ab", 32) + "\nsize 12\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		digest, size, ok := lfsPointer(data)
		if ok && (size < 0 || len(digest) != len("sha256:")+64 || len(data) >= maxPointer) {
			t.Errorf("%q: got %q, %d", data, digest, size)
		}
	})
}

func FuzzBatch(f *testing.F) {
	f.Add(oid + " blob 12\n")
	f.Add(oid + " missing\n")
	f.Fuzz(func(t *testing.T, line string) {
		if id, _, size, err := parseBatch(line); err == nil && (size < 0 || !validOID(id)) {
			t.Errorf("%q: got %q, %d", line, id, size)
		}
	})
}

func FuzzPaths(f *testing.F) {
	for _, s := range []string{"a/b", ".git/x", "../x", "a\nb", "\xff", "git~1", "a/.git .:x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if admitted(s) && (strings.HasPrefix(s, "/") || strings.Contains("/"+s+"/", "/../") || strings.Contains("/"+s+"/", "/./") || strings.Contains(s, "//")) {
			t.Errorf("%q is admitted", s)
		}
		if inGit(s) && !Reserved(s) {
			t.Errorf("%q is in .git and not reserved", s)
		}
		if got := printable(s); strings.ContainsAny(got, "\n\x1b") {
			t.Errorf("%q is printed as %q", s, got)
		}
		if quoted := quotePath(s); strings.ContainsAny(quoted, "\n\x00") || unquote(quoted) != s {
			t.Errorf("%q is quoted as %s", s, quoted)
		}
	})
}

// unquote is git's reading of a quoted path, for what quotePath writes.
func unquote(s string) string {
	var b strings.Builder
	for s = s[1 : len(s)-1]; s != ""; {
		if s[0] == '\\' {
			b.WriteByte((s[1]-'0')<<6 | (s[2]-'0')<<3 | (s[3] - '0'))
			s = s[4:]
			continue
		}
		b.WriteByte(s[0])
		s = s[1:]
	}
	return b.String()
}

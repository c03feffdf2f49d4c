package volume

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestUsed_ByTheFilesystemsOwnAccount: a mark that was written, and one that was
// written and deleted, in an image of more than one group.
func TestUsed_ByTheFilesystemsOwnAccount(t *testing.T) {
	needs(t)
	const size = 160 << 20
	image, v := mounted(t, size, 1024)
	kept, deleted := bytes.Repeat([]byte("kept mark"), 1000), bytes.Repeat([]byte("gone mark"), 1000)
	write := func(name string, body []byte) {
		t.Helper()
		f, err := os.Create(filepath.Join(v.at, name))
		if err == nil {
			_, err = f.Write(body)
		}
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	write("kept", kept)
	write("deleted", deleted)
	if err := os.Remove(filepath.Join(v.at, "deleted")); err != nil {
		t.Fatal(err)
	}
	freeze(t, v)
	body, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	for _, mark := range [][]byte{kept, deleted} {
		if !bytes.Contains(body, mark) {
			t.Fatal("the image shows nothing to be looked for")
		}
	}
	u, err := ReadUsed(bytes.NewReader(body), size)
	if err != nil {
		t.Fatal(err)
	}
	gaps := 0
	for from, to := range u.Gaps() {
		clear(body[from*blockBytes : to*blockBytes])
		gaps += int(to - from)
	}
	if !bytes.Contains(body, kept) || bytes.Contains(body, deleted[:9]) {
		t.Error("the account is not that of the files")
	}
	for at := range int64(size / blockBytes) {
		next := u.Next(at)
		if u.Has(at) != (next == at) || next > at && u.Has(next-1) {
			t.Fatalf("block %d: used %v, next %d", at, u.Has(at), next)
		}
		if !u.Has(at) {
			gaps--
		}
	}
	if gaps != 0 || !u.Has(size/blockBytes) || !u.Has(1<<40) {
		t.Errorf("%d blocks are counted otherwise", gaps)
	}
	// What is left is a filesystem as whole as before.
	other := filepath.Join(t.TempDir(), "image")
	if err := errors.Join(os.WriteFile(other, body, 0o600), Check(t.Context(), other)); err != nil {
		t.Error(err)
	}
}

// parts is a filesystem of which only the parts are given that are read.
func parts(super, group, bitmap []byte) io.ReaderAt {
	b := make([]byte, 3*blockBytes)
	copy(b[superOffset:superOffset+superBytes], super)
	copy(b[blockBytes:2*blockBytes], group)
	copy(b[2*blockBytes:], bitmap)
	return bytes.NewReader(b)
}

const partsBytes = 100 * blockBytes

// sealed are parts that agree.
func sealed() (super, group, bitmap []byte) {
	super, group, bitmap = make([]byte, superBytes), make([]byte, groupBytes), bytes.Repeat([]byte{0xff}, blockBytes)
	bitmap[1] = 0xfd // block 9 is not used
	for at, n := range map[int]uint32{0x4: 100, 0x18: 2, 0x20: groupBlocks, 0x28: 64, 0x38: 0xef53, 0x58: inodeBytes, 0x60: incompatible, 0x64: metadataCsum, 0xfc: groupBytes << 16} {
		binary.LittleEndian.PutUint32(super[at:], n)
	}
	binary.LittleEndian.PutUint32(group, 2)
	seal(super, group, bitmap)
	return super, group, bitmap
}

func seal(super, group, bitmap []byte) {
	seed := checksum(^uint32(0), super[0x68:0x78])
	for at, n := range map[int]int{0x18: blockBytes, 0x1a: inodesOf(super) / 8} { // of its blocks, of its inodes
		sum := checksum(seed, bitmap[:n])
		binary.LittleEndian.PutUint16(group[at:], uint16(sum))
		binary.LittleEndian.PutUint16(group[at+0x20:], uint16(sum>>16))
	}
	binary.LittleEndian.PutUint16(group[0x1e:], 0)
	binary.LittleEndian.PutUint16(group[0x1e:], uint16(checksum(checksum(seed, make([]byte, 4)), group)))
}

func inodesOf(super []byte) int {
	return int(min(binary.LittleEndian.Uint32(super[0x28:]), groupBlocks))
}

// TestNameless_Parts: the table of a group's inodes, of which only what is in use
// counts.
func TestNameless_Parts(t *testing.T) {
	for name, c := range map[string]struct {
		used, links int // of an inode: counted from 0
		group       uint16
		want        bool
	}{
		"in use, with a name":    {used: 12, links: 12},
		"in use, without":        {used: 12, links: 13, want: true},
		"the last":               {used: 63, links: 1, want: true},
		"the filesystem's own":   {used: 9, links: 12},
		"of a table never begun": {used: 12, links: 13, group: 1},
	} {
		s, g, b := sealed()
		clear(b)
		b[c.used/8] |= 1 << (c.used % 8)
		binary.LittleEndian.PutUint32(g[4:], 2)
		binary.LittleEndian.PutUint32(g[8:], 3)
		binary.LittleEndian.PutUint16(g[0x12:], c.group)
		seal(s, g, b)
		table := make([]byte, 4*blockBytes)
		table[c.links*inodeBytes+0x1a] = 1
		read, err := readSuper(parts(s, g, b))
		if err != nil {
			t.Fatal(err)
		}
		whole := make([]byte, 3*blockBytes)
		if _, err := parts(s, g, b).ReadAt(whole, 0); err != nil {
			t.Fatal(err)
		}
		got, err := nameless(bytes.NewReader(append(whole, table...)), &read, partsBytes)
		if err != nil || got != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for name, spoil := range map[string]func(g, b []byte){
		"a table nowhere":    func(g, _ []byte) { clear(g[8:12]) },
		"a table elsewhere":  func(g, _ []byte) { g[8] = 97 },
		"bits elsewhere":     func(g, _ []byte) { g[4] = 100 },
		"another descriptor": func(g, _ []byte) { g[0x30]++ },
	} {
		s, g, b := sealed()
		binary.LittleEndian.PutUint32(g[4:], 2)
		binary.LittleEndian.PutUint32(g[8:], 3)
		spoil(g, b)
		if name != "another descriptor" {
			seal(s, g, b)
		}
		read, err := readSuper(parts(s, g, b))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := nameless(parts(s, g, b), &read, partsBytes); !errors.Is(err, ErrDamaged) || got {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestReadUsed_Refusals(t *testing.T) {
	for name, spoil := range map[string]func(super, group, bitmap []byte){
		"more blocks than bytes": func(s, _, _ []byte) { s[0x4] = 101 },
		"no blocks":              func(s, _, _ []byte) { s[0x4] = 0 },
		"blocks beyond counting": func(s, _, _ []byte) { s[0x153] = 0xff },
		"other blocks":           func(s, _, _ []byte) { s[0x18] = 1 },
		"blocks without measure": func(s, _, _ []byte) { s[0x1b] = 0xff },
		"other inodes":           func(s, _, _ []byte) { s[0x58] = 128; s[0x59] = 0 },
		"no inodes":              func(s, _, _ []byte) { s[0x28] = 0 },
		"too many inodes":        func(s, _, _ []byte) { s[0x2a] = 1 },
		"other groups":           func(s, _, _ []byte) { s[0x20] = 1 },
		"a feature we never set": func(s, _, _ []byte) { s[0x60] |= 0x10 },
		"clusters":               func(s, _, _ []byte) { s[0x65] |= 2 },
		"no checksums":           func(s, _, _ []byte) { s[0x65] = 0 },
		"short descriptors":      func(s, _, _ []byte) { s[0xfe] = 32 },
		"a lost descriptor":      func(_, g, _ []byte) { clear(g) },
		"a changed descriptor":   func(_, g, _ []byte) { g[0xc]++ },
		"lost bits":              func(_, _, b []byte) { clear(b) },
		"one bit":                func(_, _, b []byte) { b[4095] ^= 0x80 },
		"bits elsewhere":         func(s, g, b []byte) { g[0] = 100; seal(s, g, b) },
		"bits nowhere":           func(s, g, b []byte) { g[0] = 0; seal(s, g, b) },
	} {
		s, g, b := sealed()
		spoil(s, g, b)
		if u, err := ReadUsed(parts(s, g, b), partsBytes); !errors.Is(err, ErrDamaged) || u != nil {
			t.Errorf("%s: %v, %v", name, u, err)
		}
	}
}

func TestReadUsed_Parts(t *testing.T) {
	s, g, b := sealed()
	u, err := ReadUsed(parts(s, g, b), partsBytes)
	if err != nil {
		t.Fatal(err)
	}
	got := map[int64]int64{}
	for from, to := range u.Gaps() {
		got[from] = to
	}
	if diff := cmp.Diff(map[int64]int64{9: 10}, got); diff != "" {
		t.Error(diff)
	}
	// A group whose bits were never written is all used.
	g[0x12] = 2
	seal(s, g, make([]byte, blockBytes))
	if u, err = ReadUsed(parts(s, g, nil), partsBytes); err != nil || !u.Has(9) {
		t.Errorf("%v, %v", u, err)
	}
	for name, r := range map[string]io.ReaderAt{"no filesystem": parts(nil, g, b), "a short file": bytes.NewReader(s)} {
		u, err := ReadUsed(r, partsBytes)
		if err != nil || u != nil || !u.Has(0) || u.Next(7) != 7 {
			t.Errorf("%s: %v, %v", name, u, err)
		}
	}
}

func FuzzReadUsed(f *testing.F) {
	s, g, b := sealed()
	f.Add(s, g, b, false)
	f.Add(s, g, []byte{}, false)
	f.Add(s[:64], []byte{}, b, false)
	g[0x12] = 2
	f.Add(s, g, b, true)
	f.Fuzz(func(t *testing.T, s, g, b []byte, agree bool) {
		if agree { // so that what lies behind the checksums is tried too
			s, g, b = sized(s, superBytes), sized(g, groupBytes), sized(b, blockBytes)
			seal(s, g, b)
		}
		image := parts(s, g, b)
		if super, err := readSuper(image); err == nil {
			nameless(image, &super, partsBytes) // returns
		}
		u, err := ReadUsed(image, partsBytes)
		if err != nil || u == nil {
			return
		}
		last := int64(-1)
		for from, to := range u.Gaps() {
			if from <= last || to <= from || to > partsBytes/blockBytes || u.Has(from) || u.Has(to-1) || u.Next(from) != to {
				t.Fatalf("%d to %d after %d", from, to, last)
			}
			last = to
		}
	})
}

// sized is b, cut or filled with zeros.
func sized(b []byte, n int) []byte {
	out := make([]byte, n)
	copy(out, b)
	return out
}

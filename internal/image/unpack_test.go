package image

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestUnpackRefusals are layers whose bytes, not whose entries, are wrong.
func TestUnpackRefusals(t *testing.T) {
	body := layerOf(t, e{name: "a", body: strings.Repeat("layer", 10000)})
	raw := func(b []byte) func(*testing.T) *crafted {
		return func(t *testing.T) *crafted {
			c := craft(t, func([]byte) []byte { return b }, body)
			return c
		}
	}
	cut := gz(body)
	huge := layerOf(t, e{name: "a", extra: func(h *tar.Header) { h.Size = 0 }})
	// The size field of the first header: base-256, 2^62.
	copy(huge[124:136], append([]byte{0x80, 0, 0, 0}, binary.BigEndian.AppendUint64(nil, 1<<62)...))
	resum(huge)
	negative := bytes.Clone(huge)
	copy(negative[124:136], bytes.Repeat([]byte{0xff}, 12))
	resum(negative)
	attributes := layerOf(t, e{name: "PaxHeaders/a", body: strings.Repeat("x", 2<<20)}, e{name: "a"})
	attributes[156] = tar.TypeXHeader
	resum(attributes)
	for _, c := range []struct {
		name string
		make func(t *testing.T) *crafted
		want error
		opt  Options
	}{
		{name: "diff_id", want: ErrDigestMismatch, make: func(t *testing.T) *crafted {
			c := craft(t, gz, body)
			c.config.RootFS.DiffIDs[0] = digestOf([]byte("other"))
			c.seal(t)
			return c
		}},
		{name: "bytes after the end of the tar", want: ErrDigestMismatch, make: raw(append(bytes.Clone(body), make([]byte, 4096)...))},
		{name: "truncated gzip", want: ErrHostile, make: raw(cut[:len(cut)/2])},
		{name: "gzip without its sum", want: ErrHostile, make: raw(cut[:len(cut)-8])},
		{name: "gzip and then something", want: ErrHostile, make: raw(append(bytes.Clone(cut), "something"...))},
		{name: "truncated zstd", want: ErrHostile, make: raw(zst(body)[:30])},
		{name: "truncated tar", want: ErrHostile, make: raw(body[:2000])},
		{name: "no tar", want: ErrHostile, make: raw([]byte(strings.Repeat("x", 2000)))},
		{name: "decompression bomb", want: ErrTooLarge, opt: Options{MaxBytes: 1 << 20}, make: func(t *testing.T) *crafted {
			return craft(t, gz, append(layerOf(t), make([]byte, 64<<20)...))
		}},
		{name: "decompression bomb over layers", want: ErrTooLarge, opt: Options{MaxBytes: 1 << 20}, make: func(t *testing.T) *crafted {
			l := layerOf(t, e{name: "a", body: strings.Repeat("0", 400<<10)})
			return craft(t, gz, l, l, l)
		}},
		{name: "huge size", want: ErrTooLarge, make: raw(huge)},
		{name: "negative size", want: ErrHostile, make: raw(negative)},
		{name: "sparse file", want: ErrTooLarge, opt: Options{MaxBytes: 1 << 20}, make: raw(sparseTar(t, 1<<40))},
		{name: "header of attributes without end", want: ErrHostile, make: raw(attributes)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openStore(t, c.opt)
			img, err := s.Import(t.Context(), c.make(t).directory(t))
			if err != nil {
				t.Fatal(err)
			}
			before := snapshot(t, s.dir)
			r, err := s.Rootfs(t.Context(), img.Digest)
			if !errors.Is(err, c.want) || r != nil {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if diff := cmp.Diff(before, snapshot(t, s.dir)); diff != "" {
				t.Errorf("the refusal left something: %s", diff)
			}
		})
	}
}

// resum makes the checksum of the first header right again.
func resum(b []byte) {
	copy(b[148:156], "        ")
	sum := 0
	for _, c := range b[:512] {
		sum += int(c)
	}
	copy(b[148:156], fmt.Sprintf("%06o\x00 ", sum))
}

// sparseTar is what GNU tar makes of a file that is one hole.
func sparseTar(t testing.TB, size int64) []byte {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "hole"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("tar", "-C", dir, "-S", "--format=posix", "-cf", "-", "hole").Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSparseFileThatFits(t *testing.T) {
	s := openStore(t, Options{})
	img, err := s.Import(t.Context(), craft(t, gz, sparseTar(t, 1<<20)).directory(t))
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Rootfs(t.Context(), img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	if info, err := os.Stat(filepath.Join(r.Path, "hole")); err != nil || info.Size() != 1<<20 {
		t.Errorf("%v %v", info, err)
	}
}

func TestRecordNamesWhatWasLeftOut(t *testing.T) {
	s := openStore(t, Options{})
	img, err := s.Import(t.Context(), craft(t, nil, layerOf(t, e{name: "dev/sda", kind: tar.TypeBlock}, e{name: "f", extra: func(h *tar.Header) {
		h.PAXRecords = map[string]string{"SCHILY.xattr.user.x": "y"}
	}})).directory(t))
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Rootfs(t.Context(), img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	b, err := os.ReadFile(filepath.Join(filepath.Dir(r.Path), recordName))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if got["special_count"] != 1.0 || got["xattrs"] != 1.0 || got["specials"].([]any)[0] != `4 "dev/sda"` {
		t.Errorf("%s", b)
	}
}

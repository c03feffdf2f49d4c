package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
)

// borders are where something on the way may cut: pages, pipes, credit, frames.
var borders = []int{4 << 10, 64 << 10, 1 << 20}

// bordered is a text of characters of four bytes, moved by shift bytes, so that
// one of them lies across every border; or all 256 bytes in turn, of which every
// border meets others.
func bordered(shift, size int) []byte {
	unit := []byte("\U0001F680")
	if shift < 0 {
		unit = nil
		for b := range 256 {
			unit = append(unit, byte(b))
		}
		unit = append(unit, "\r\n\x00\xc3\x28\xed\xa0\x80"...) // no text in any reading
	}
	all := bytes.Repeat([]byte("-"), max(shift, 0))
	return append(all, bytes.Repeat(unit, size/len(unit)+1)...)[:size]
}

// Bytes are bytes: characters and what is none, cut anywhere on the way, come
// out as they went in, on both streams and on standard input.
func TestBytesAreBytesAcrossEveryBorder(t *testing.T) {
	across(t, 0, func(t *testing.T, r remote) {
		for shift := -1; shift < 4; shift++ {
			data := bordered(shift, borders[2]+borders[1]+3)
			sum := sha256.Sum256(data)
			same := func(what string, got []byte, err error) {
				t.Helper()
				if err != nil || sha256.Sum256(got) != sum {
					t.Errorf("shift %d: %s: %d bytes of %d, first other byte at %d, %v", shift, what, len(got), len(data), differ(got, data), err)
				}
			}
			for _, c := range []struct {
				script string
				of     func(sandbox.Settlement) []byte
			}{
				{"cat", func(s sandbox.Settlement) []byte { return s.Stdout }},
				{"cat >&2", func(s sandbox.Settlement) []byte { return s.Stderr }},
			} {
				q := command(c.script)
				q.Stdin, q.TimeoutSeconds = data, 60
				s, err := r.Execute(t.Context(), r.id, q)
				same("execute "+c.script, c.of(s), err)
				if len(s.Stdout)+len(s.Stderr) != len(data) {
					t.Errorf("shift %d: %s: %d and %d bytes", shift, c.script, len(s.Stdout), len(s.Stderr))
				}
			}
			q := command("sha256sum")
			q.Stdin, q.TimeoutSeconds = data, 60
			s, err := r.Execute(t.Context(), r.id, q)
			if want := hex.EncodeToString(sum[:]); err != nil || !bytes.HasPrefix(s.Stdout, []byte(want)) {
				t.Errorf("shift %d: inside: %q %v", shift, s.Stdout, err)
			}
			for _, border := range borders {
				got, err := through(t, r, process("cat"), data, border)
				same(fmt.Sprint("live, cut at ", border), got, err)
			}
			// What a live process says of itself is kept up to 64 KiB.
			short := data[:borders[1]-1]
			p := r.spawn(t, process("cat >&2"))
			_, werr := p.Input().Write(short)
			cerr := p.Input().Close()
			errs, err := io.ReadAll(p.Error())
			if werr != nil || cerr != nil || err != nil || !bytes.Equal(errs, short) {
				t.Errorf("shift %d: live, standard error: %d bytes, first other at %d, %v %v %v", shift, len(errs), differ(errs, short), werr, cerr, err)
			}
			if _, err := p.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// through gives data to a process in pieces that end one byte before, at, and
// one byte behind a border in turn, and returns what comes out.
func through(t *testing.T, r remote, q sandbox.ProcessRequest, data []byte, border int) (got []byte, err error) {
	t.Helper()
	p := r.spawn(t, q)
	var writer sync.WaitGroup
	writer.Go(func() {
		n := 0
		for rest := data; len(rest) > 0; n++ {
			piece := min(len(rest), border-1+n%3)
			if _, err := p.Input().Write(rest[:piece]); err != nil {
				t.Error(err)
				return
			}
			rest = rest[piece:]
		}
		if err := p.Input().Close(); err != nil {
			t.Error(err)
		}
	})
	got, err = io.ReadAll(p.Output())
	writer.Wait()
	if exit, err := p.Wait(t.Context()); err != nil || exit.ExitCode == nil || *exit.ExitCode != 0 {
		t.Error(exit, err)
	}
	return got, err
}

// differ is the offset of the first byte that differs, -1 where none does.
func differ(a, b []byte) int {
	for n := range max(len(a), len(b)) {
		if n >= len(a) || n >= len(b) || a[n] != b[n] {
			return n
		}
	}
	return -1
}

package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
)

func TestDigester(t *testing.T) {
	data := make([]byte, 3<<20+1)
	rand.NewChaCha8([32]byte{7}).Read(data)
	want := func(b []byte) sandbox.Digest {
		sum := sha256.Sum256(b)
		return sandbox.Digest("sha256:" + hex.EncodeToString(sum[:]))
	}
	d := NewDigester()
	for _, tt := range []struct {
		name  string
		sizes []int
	}{
		{"nothing", nil},
		{"small pieces", []int{1, 0, 100, 4096}},
		{"one large piece", []int{3 << 20}},
		{"a large piece between small ones", []int{5, 1 << 20, 7, 1 << 20, 0, 3}},
		{"at the border", []int{besideBytes - 1, besideBytes, besideBytes + 1}},
		{"many large pieces", []int{1 << 19, 1 << 19, 1 << 19, 1 << 19, 1 << 19, 1 << 19}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d.Reset()
			at := 0
			for _, n := range tt.sizes {
				d.Add(data[at : at+n])
				at += n
			}
			for range 2 { // it may be asked again
				if got := d.Digest(); got != want(data[:at]) {
					t.Errorf("got %s, want %s", got, want(data[:at]))
				}
			}
			d.Add(data[at : at+1]) // and go on
			if got := d.Digest(); got != want(data[:at+1]) {
				t.Errorf("one more byte: got %s, want %s", got, want(data[:at+1]))
			}
		})
	}
}

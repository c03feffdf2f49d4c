package process

import (
	"bytes"
	"fmt"
	"io"
	random "math/rand/v2"
	"time"

	"github.com/checkfu/checkfu/internal/probe"
)

// block is how much is written at once: less than a pipe holds.
const block = 32 << 10

// noise is an endless text that nobody can know before it is written and that
// is nowhere the same. Both ends make it, so neither keeps it.
type noise struct{ source *random.ChaCha8 }

func (n noise) fill(b []byte) {
	_, _ = n.source.Read(b) // never fails
	for i := range b {
		b[i] &= 0x7f
	}
}

// throughput writes and reads at once, through one copying child.
func throughput(t *probe.T) {
	total := max(t.StreamBytes(), 1<<20) / block * block
	seed := [32]byte(t.Bytes(32))
	l := run(t, "exec cat")
	began := time.Now()
	written := l.feed(func() error {
		from, b := noise{random.NewChaCha8(seed)}, make([]byte, block)
		for range total / block {
			from.fill(b)
			b[block-1] = '\n'
			if err := l.write(b); err != nil {
				return err
			}
		}
		return nil
	})
	from, want, got := noise{random.NewChaCha8(seed)}, make([]byte, block), make([]byte, block)
	for at := int64(0); at < total; at += block {
		from.fill(want)
		want[block-1] = '\n'
		n, err := io.ReadFull(l.out, got)
		if err != nil || !bytes.Equal(want, got) {
			t.Check("same", false, fmt.Sprintf("%d bytes as they were written", total),
				fmt.Sprintf("other bytes in the %d after %d, %v", n, at, err))
			return
		}
	}
	t.Check("same", true, "", nil)
	err := <-written
	t.Check("taken", err == nil, "writes that are taken", err)
	t.Observe("%d MiB both ways at %.0f MiB/s", total>>20, float64(total>>20)/max(time.Since(began).Seconds(), 1e-6))
}

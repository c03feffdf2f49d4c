package gateway

import (
	"fmt"
	"testing"
	"time"
)

// What a lease and a count cost, which are on the disk before they are answered;
// counts of many requests at once go there together.
func BenchmarkStore(b *testing.B) {
	s := openStore(b, b.TempDir(), nil)
	end := time.Now().Add(time.Hour)
	b.Run("grant", func(b *testing.B) {
		for i := range b.N {
			if _, err := s.Grant(Lease{RunID: "r", LeaseID: fmt.Sprintf("grant-%d-%d", b.N, i), LeaseEpoch: 1, ExpiresAt: end}); err != nil {
				b.Fatal(err)
			}
		}
	})
	if _, err := s.Grant(Lease{RunID: "r", LeaseID: "l", LeaseEpoch: 1, ExpiresAt: end}); err != nil {
		b.Fatal(err)
	}
	count := func(b *testing.B) {
		if err := s.Add("l", Usage{Requests: 1}); err != nil {
			b.Error(err)
		}
	}
	b.Run("count", func(b *testing.B) {
		for range b.N {
			count(b)
		}
	})
	b.Run("count, 64 at once", func(b *testing.B) {
		b.SetParallelism(32)
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				count(b)
			}
		})
	})
}

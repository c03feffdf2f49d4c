package probe

import (
	"crypto/sha256"
	"encoding/hex"
	random "math/rand/v2"
	"slices"
)

// shuffle gives the probes in an order of this seed and pass.
func (r *run) shuffle(probes []Probe) []Probe {
	mixed := slices.Clone(probes)
	r.mu.Lock()
	defer r.mu.Unlock()
	random.New(r.source).Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	return mixed
}

// draw gives a probe a stream of its own until the function is called that it
// returns, so that the probe draws the same whatever else runs beside it.
func (r *run) draw(probe string) func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.source
	r.source = random.NewChaCha8(sha256.Sum256([]byte(r.o.Seed + "\x00" + r.session + "\x00" + probe)))
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.source = before
	}
}

// random is n bytes of this seed's stream.
func (r *run) random(n int) []byte {
	b := make([]byte, n)
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = r.source.Read(b) // never fails
	return b
}

func (r *run) mint(prefix string) string { return prefix + hex.EncodeToString(r.random(10)) }

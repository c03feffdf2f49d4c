package server

// ring keeps the newest bytes of one stream, at most limit, by their offset in
// the whole stream. It grows with what comes, so that a quiet process costs
// little.
type ring struct {
	limit int
	buf   []byte // the byte at offset n stands at n % len(buf)
	end   int64  // bytes of the whole stream
	floor int64  // what lies below was let go of
}

const firstRing = 4 << 10

// low is the offset of the first byte that is still kept.
func (r *ring) low() int64 { return max(r.floor, r.end-int64(len(r.buf))) }

// write appends b, over the oldest bytes once the ring is full.
func (r *ring) write(b []byte) {
	if skip := len(b) - r.limit; skip > 0 {
		r.end += int64(skip)
		b = b[skip:]
	}
	if r.buf == nil || len(r.buf) < r.limit && r.end-r.floor+int64(len(b)) > int64(len(r.buf)) {
		r.grow(len(b))
	}
	for len(b) > 0 {
		n := copy(r.buf[r.end%int64(len(r.buf)):], b)
		r.end += int64(n)
		b = b[n:]
	}
}

// grow makes room for n more bytes as far as limit allows.
func (r *ring) grow(n int) {
	low := r.low()
	size := min(r.limit, max(firstRing, 2*len(r.buf), int(r.end-low)+n))
	next := ring{limit: r.limit, buf: make([]byte, size), end: low, floor: low}
	for at := low; at < r.end; {
		part := r.at(at, int(r.end-at))
		next.write(part)
		at += int64(len(part))
	}
	r.buf = next.buf
	r.floor = low
}

// at returns the bytes from offset on that lie in one piece, at most n. They are
// the ring's own. offset is not below low.
func (r *ring) at(offset int64, n int) []byte {
	if offset >= r.end {
		return nil
	}
	i := int(offset % int64(len(r.buf)))
	return r.buf[i:min(len(r.buf), i+min(n, int(r.end-offset)))]
}

// free lets go of everything that is kept.
func (r *ring) free() { r.buf, r.floor = nil, r.end }

package client

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/checkfu/checkfu/wire"
)

// payload is a request body that can be sent as often as it takes.
type payload struct {
	media string
	size  int64
	open  func() io.Reader
}

func jsonPayload(m wire.Message) (payload, error) {
	data, err := wire.Encode(m)
	if err != nil {
		return payload{}, err
	}
	return payload{wire.MediaJSON, int64(len(data)), func() io.Reader { return bytes.NewReader(data) }}, nil
}

func framedPayload(call wire.Message, data []byte) (payload, error) {
	b, err := wire.NewBody(call, data)
	if err != nil {
		return payload{}, err
	}
	return payload{wire.MediaFrames, b.Size(), b.Reader}, nil
}

// upload is one reading of a payload. Transports may go on reading after they
// have answered; the bytes are the caller's again by then, so upload stops
// giving them out.
type upload struct {
	mu sync.Mutex
	r  io.Reader
}

var errWithdrawn = errors.New("the request is over")

func (u *upload) Read(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.r == nil {
		return 0, errWithdrawn
	}
	return u.r.Read(p)
}

func (u *upload) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.r = nil
	return nil
}

// uploads are all readings of one delivery.
type uploads struct {
	mu   sync.Mutex
	all  []*upload
	open func() io.Reader
}

func (u *uploads) next() (io.ReadCloser, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	one := &upload{r: u.open()}
	u.all = append(u.all, one)
	return one, nil
}

// withdraw ends them all. No byte of the payload is read after it returns.
func (u *uploads) withdraw() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, one := range u.all {
		one.Close()
	}
}

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// fileBytes is the largest file of the contract.
const fileBytes = sandbox.MaxFileBytes

// rawBody is a plain HTTP server that takes and gives one file, and knows no
// more than its length.
type rawBody struct {
	content []byte
	digest  bool // both ends hash what goes by
	url     string
	server  *http.Server
	http    *http.Transport
}

func newRawBody(content []byte, digest bool) (*rawBody, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &rawBody{content: content, digest: digest, url: "http://" + l.Addr().String() + "/", http: &http.Transport{DisableCompression: true}}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go r.server.Serve(l)
	return r, nil
}

func (r *rawBody) close() error {
	r.http.CloseIdleConnections()
	return r.server.Close()
}

func (r *rawBody) hash(b []byte) {
	if r.digest {
		sha256.Sum256(b)
	}
}

func (r *rawBody) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.Method == http.MethodPut {
		body := make([]byte, q.ContentLength)
		if _, err := io.ReadFull(q.Body, body); err != nil {
			panic(http.ErrAbortHandler)
		}
		r.hash(body)
		return
	}
	r.hash(r.content)
	w.Header().Set("Content-Length", strconv.Itoa(len(r.content)))
	w.Write(r.content)
}

// do makes one request; the answer's body goes to take.
func (r *rawBody) do(ctx context.Context, method string, body []byte, take func(io.Reader) error) error {
	q, err := http.NewRequestWithContext(ctx, method, r.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	a, err := r.http.RoundTrip(q)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return errors.New(a.Status)
	}
	return take(a.Body)
}

func (r *rawBody) put(ctx context.Context) error {
	r.hash(r.content)
	return r.do(ctx, http.MethodPut, r.content, func(io.Reader) error { return nil })
}

func (r *rawBody) get(ctx context.Context) error {
	return r.do(ctx, http.MethodGet, nil, func(body io.Reader) error {
		got := make([]byte, fileBytes)
		_, err := io.ReadFull(body, got)
		r.hash(got)
		return err
	})
}

// wireFile is the largest file both ways, beside the same bytes as the body of
// plain HTTP, and beside those with a digest at both ends.
func wireFile(ctx context.Context, w *world) (err error) {
	content := bytes.Repeat([]byte("0123456789abcdef"), fileBytes/16)
	x, err := w.wireMemory(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.close()) }()
	var raws [2]*rawBody
	for i := range raws {
		if raws[i], err = newRawBody(content, i == 1); err != nil {
			return err
		}
		defer raws[i].close()
	}
	id, end, err := x.instance(ctx, x.over, map[string][]byte{"a": content}, true)
	if err != nil {
		return err
	}
	defer end()
	read := func(p sandbox.Provider) side {
		return timed(func(ctx context.Context) error {
			got, err := p.ReadFile(ctx, id, sandbox.FileRead{Path: repoPath + "/a", AllowedRoot: repoPath, MaximumBytes: fileBytes})
			if err == nil && len(got) != fileBytes {
				err = fmt.Errorf("%d bytes", len(got))
			}
			return err
		})
	}
	got, err := interleave(ctx, 2*w.n, read(x.over), timed(raws[0].get), timed(raws[1].get), read(x.bare))
	if err != nil {
		return err
	}
	w.fileLines("read 16 MiB", got)
	// The memory provider takes files while it is staged, and so not while active.
	fresh, end, err := x.instance(ctx, x.over, nil, false)
	if err != nil {
		return err
	}
	defer end()
	write := func(p sandbox.Provider) side {
		return timed(func(ctx context.Context) error {
			return p.WriteFile(ctx, fresh, sandbox.FileWrite{Path: repoPath + "/a", Content: content})
		})
	}
	got, err = interleave(ctx, 2*w.n, write(x.over), timed(raws[0].put), timed(raws[1].put), write(x.bare))
	if err != nil {
		return err
	}
	w.fileLines("write 16 MiB", got)
	return nil
}

func (w *world) fileLines(what string, got []samples) {
	rate := func(s samples) string { return fmt.Sprintf("%.0f MiB/s", fileBytes>>20*1000/s.median()) }
	note := rate(got[0]) + ", bare provider " + fmt.Sprintf("%.1f ms", got[3].median())
	w.rep.add(
		line{what: "wire: " + what + ", memory", note: note, unit: "ms", ours: got[0], rawName: "HTTP body", raw: got[1], bound: 2},
		line{what: "wire: " + what + ", memory", unit: "ms", ours: got[0], rawName: "HTTP body and SHA-256 at both ends", raw: got[2]},
	)
}

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
)

// talker is a live program: what is written to in is its standard input.
type talker struct {
	name  string
	in    io.Writer
	out   io.Reader
	close func() error
}

type talkers []talker

func (t talkers) close() error {
	var errs []error
	for _, one := range t {
		errs = append(errs, one.close())
	}
	return errors.Join(errs...)
}

// interleave gives every talker its turn: send, then take so many bytes back.
func (t talkers) interleave(ctx context.Context, n int, send []byte, take int64) ([]samples, error) {
	buf := make([]byte, 64<<10)
	sides := make([]side, 0, len(t))
	for _, one := range t {
		sides = append(sides, func(ctx context.Context) (time.Duration, error) {
			// What hangs is cut, so that nothing here waits for ever.
			defer context.AfterFunc(ctx, func() { one.close() })()
			took, err := timed(func(context.Context) error {
				if _, err := one.in.Write(send); err != nil {
					return err
				}
				for have := int64(0); have < take; {
					n, err := one.out.Read(buf)
					if have += int64(n); err != nil && have < take {
						return fmt.Errorf("%s: %d bytes of %d: %w", one.name, have, take, err)
					}
				}
				return nil
			})(ctx)
			return took, err
		})
	}
	return interleave(ctx, n, sides...)
}

// talkers opens the same program through the wire and without one, each in an
// instance of its own that holds files. What they are closed with ends all.
func (x *wired) talkers(ctx context.Context, files map[string][]byte, argv ...string) (all talkers, err error) {
	for i, p := range x.both() {
		id, end, err := x.instance(ctx, p, files, true)
		if err != nil {
			return nil, errors.Join(err, all.close())
		}
		t, err := live(ctx, []string{x.name + " through the wire", x.name + ", openProcess"}[i], p, id, argv...)
		if err != nil {
			return nil, errors.Join(err, end(), all.close())
		}
		destroy := t.close
		t.close = sync.OnceValue(func() error { return errors.Join(destroy(), end()) })
		all = append(all, t)
	}
	return all, nil
}

// live opens a process of p.
func live(ctx context.Context, name string, p sandbox.Provider, id sandbox.InstanceID, argv ...string) (talker, error) {
	proc, err := p.Optional().OpenProcess.OpenProcess(ctx, id, processID(), sandbox.ProcessRequest{
		Executable: argv[0], Arguments: argv[1:], WorkingDirectory: "/", Environment: map[string]string{}})
	if err != nil {
		return talker{}, fmt.Errorf("%s: %w", name, err)
	}
	go io.Copy(io.Discard, proc.Error())
	return talker{name, proc.Input(), proc.Output(), func() error { return proc.Destroy(context.WithoutCancel(ctx)) }}, nil
}

// child starts argv on two plain pipes.
func child(name string, argv ...string) (talker, error) {
	c := exec.Command(argv[0], argv[1:]...)
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "HOME=/nonexistent"}
	var said bytes.Buffer
	c.Stderr = &said
	in, err := c.StdinPipe()
	if err != nil {
		return talker{}, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return talker{}, err
	}
	if err := c.Start(); err != nil {
		return talker{}, fmt.Errorf("%s: %w", name, err)
	}
	return talker{name, in, out, sync.OnceValue(func() error {
		in.Close()
		late := time.AfterFunc(5*time.Second, func() { c.Process.Kill() })
		defer late.Stop()
		io.Copy(io.Discard, out)
		if err := c.Wait(); err != nil && said.Len() > 0 {
			return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(said.Bytes()))
		}
		return nil
	})}, nil
}

// digested hashes what a talker says twice, on a goroutine for each end: what
// any stream costs that is digested at both of them, with nothing between but
// buffers that go round.
func digested(t talker) talker {
	free, full := make(chan []byte, 16), make(chan []byte, 16)
	for range cap(free) {
		free <- make([]byte, 64<<10)
	}
	go func() {
		defer close(full)
		sum := sha256.New()
		for buf := range free {
			n, err := t.out.Read(buf[:cap(buf)])
			sum.Write(buf[:n])
			full <- buf[:n]
			if err != nil {
				return
			}
		}
	}()
	return talker{t.name + " and SHA-256 at both ends", t.in, &digestedReader{sum: sha256.New(), free: free, full: full}, t.close}
}

type digestedReader struct {
	sum         hash.Hash
	free, full  chan []byte
	piece, rest []byte
}

func (d *digestedReader) Read(b []byte) (int, error) {
	for len(d.rest) == 0 {
		if d.piece != nil {
			d.free <- d.piece
		}
		piece, ok := <-d.full
		if !ok {
			return 0, io.EOF
		}
		d.sum.Write(piece)
		d.piece, d.rest = piece, piece
	}
	n := copy(b, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

// burstBytes is one burst of output: three files of 16 MiB, below the window.
const burstBytes = 48 << 20

// burst answers every byte of in with burstBytes, a pipe's worth at a time.
func burst(in io.Reader, out io.Writer) {
	chunk := make([]byte, 64<<10)
	for {
		if _, err := in.Read(chunk[:1]); err != nil {
			return
		}
		for range burstBytes / len(chunk) {
			if _, err := out.Write(chunk); err != nil {
				return
			}
		}
	}
}

// burstPipe is the burst of the memory provider's program on two plain pipes.
func burstPipe() (talker, error) {
	guestIn, in, err := os.Pipe()
	if err != nil {
		return talker{}, err
	}
	out, guestOut, err := os.Pipe()
	if err != nil {
		return talker{}, errors.Join(err, guestIn.Close(), in.Close())
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer guestOut.Close()
		defer guestIn.Close()
		burst(guestIn, guestOut)
	}()
	return talker{"os.Pipe", in, out, sync.OnceValue(func() error {
		err := errors.Join(in.Close(), out.Close())
		<-ended
		return err
	})}, nil
}

// wireStdout is the output of a live process through the wire, beside the same
// process without one, beside plain pipes, and beside what people use.
func wireStdout(ctx context.Context, w *world) error {
	if err := w.stdoutMemory(ctx); err != nil {
		return err
	}
	return w.stdoutNative(ctx)
}

func (w *world) stdoutMemory(ctx context.Context) (err error) {
	x, err := w.wireMemory(ctx, map[string]memory.Program{"burst": func(c *memory.Call) int { burst(c.Stdin, c.Stdout); return 0 }})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.close()) }()
	all, err := x.talkers(ctx, nil, "burst")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, all.close()) }()
	for i := range 2 {
		t, err := burstPipe()
		if err != nil {
			return err
		}
		if i == 1 {
			t = digested(t)
		}
		all = append(all, t)
	}
	got, err := all.interleave(ctx, w.n, []byte("x"), burstBytes)
	if err != nil {
		return err
	}
	w.stdoutLines("memory", all, got)
	one := bytes.Repeat([]byte{1}, burstBytes)
	sum, err := interleave(ctx, w.n, timed(func(context.Context) error { sha256.Sum256(one); return nil }))
	if err != nil {
		return err
	}
	w.rep.add(line{what: "wire: SHA-256 of 48 MiB, which each end has to make of its output, piece behind piece",
		unit: "ms", ours: sum[0], rawName: "os.Pipe", raw: got[2]})
	return nil
}

// stdoutLines compares the first talker with the others.
func (w *world) stdoutLines(provider string, all talkers, got []samples) {
	rate := func(s samples) string { return fmt.Sprintf("%.0f MiB/s", burstBytes>>20*1000/s.median()) }
	bounds := map[string]float64{"os.Pipe": 2, "a pipe": 2, "docker exec": 0.5, "ssh": 0.5}
	for i := 1; i < len(all); i++ {
		w.rep.add(line{what: "wire: 48 MiB of standard output, " + provider, unit: "ms", ours: got[0], rawName: all[i].name, raw: got[i],
			bound: bounds[all[i].name], note: rate(got[0]) + " against " + rate(got[i])})
	}
}

// catting answers every line with the files of a directory: one burst.
func catting(dir string) []string {
	return []string{"/bin/sh", "-c", strings.ReplaceAll("while read x; do cat D/a D/b D/c; done", "D", dir)}
}

func (w *world) stdoutNative(ctx context.Context) (err error) {
	x, err := w.wireNative(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.close()) }()
	files := map[string][]byte{}
	for _, name := range []string{"a", "b", "c"} {
		files[name] = bytes.Repeat([]byte("0123456789abcdef"), burstBytes/3/16)
	}
	host := filepath.Join(w.dir, "big")
	if err := os.Mkdir(host, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(host)
	// On a tmpfs, as the files of the machine are.
	if err := unix.Mount("bench", host, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=64m,noswap,mode=0755"); err != nil {
		return err
	}
	defer unix.Unmount(host, unix.MNT_DETACH)
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(host, name), content, 0o644); err != nil {
			return err
		}
	}
	all, err := x.talkers(ctx, files, catting(repoPath)...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, all.close()) }()
	for i := range 2 {
		t, err := w.plain(catting(host)...)
		if err != nil {
			return err
		}
		if i == 1 {
			t = digested(t)
		}
		all = append(all, t)
	}
	peers, end := w.peers(ctx, host)
	defer end()
	for _, p := range peers {
		t, err := w.start(p.name, p.argv(catting(p.dir)...))
		if err != nil {
			return err
		}
		all = append(all, t)
	}
	got, err := all.interleave(ctx, w.n, []byte("x\n"), burstBytes)
	if err != nil {
		return err
	}
	w.stdoutLines("runc", all, got)
	return nil
}

// start is child, whose command line is told.
func (w *world) start(name string, argv []string) (talker, error) {
	w.rep.command(name, argv)
	return child(name, argv...)
}

// plain runs a program of the image outside of any machine: the same busybox.
func (w *world) plain(program ...string) (talker, error) {
	return w.start("a pipe", append([]string{"busybox"}, applet(program)...))
}

// echoLine is what an echo carries.
var echoLine = []byte("0123456789abcdef0123456789abcde\n")

// wireEcho is one line to cat and back.
func wireEcho(ctx context.Context, w *world) error {
	m, err := w.wireMemory(ctx, nil)
	if err != nil {
		return err
	}
	if err := errors.Join(w.echoes(ctx, m, nil), m.close()); err != nil {
		return err
	}
	x, err := w.wireNative(ctx)
	if err != nil {
		return err
	}
	peers, end := w.peers(ctx, w.dir)
	defer end()
	return errors.Join(w.echoes(ctx, x, peers), x.close())
}

func (w *world) echoes(ctx context.Context, x *wired, peers []peer) (err error) {
	all, err := x.talkers(ctx, nil, "/bin/cat")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, all.close()) }()
	if peers != nil {
		t, err := w.plain("/bin/cat")
		if err != nil {
			return err
		}
		all = append(all, t)
	}
	for _, p := range peers {
		t, err := w.start(p.name+" cat", p.argv("/bin/cat"))
		if err != nil {
			return err
		}
		all = append(all, t)
	}
	got, err := all.interleave(ctx, 50*w.n, echoLine, int64(len(echoLine)))
	if err != nil {
		return err
	}
	w.rep.add(line{what: "wire: echo of 32 bytes, " + x.name + ", p50", unit: "ms", ours: samples{got[0].median()}, bound: 0.3})
	for i := 1; i < len(all); i++ {
		w.rep.add(line{what: "wire: echo of 32 bytes, " + x.name, unit: "ms", ours: got[0], rawName: all[i].name, raw: got[i]})
	}
	return nil
}

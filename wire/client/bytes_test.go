package client

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

func item(index int64, content string) wire.FileItem {
	size := int64(len(content))
	return wire.FileItem{Index: index, Status: wire.ItemOK, Size: &size, Digest: digestOf([]byte(content))}
}

// A length that is announced buys no more memory than a file may need.
func TestAnAnnouncedLengthIsNotBelieved(t *testing.T) {
	var b []byte
	for chunk := make([]byte, wire.MaxFrameBytes); len(b) < sandbox.MaxFileBytes; {
		if b = extend(b, chunk, 1<<40); cap(b) > 2*sandbox.MaxFileBytes {
			t.Fatalf("%d bytes for %d", cap(b), len(b))
		}
	}
}

// W42, W44, W45: what a batch may look like, and what comes of it.
func TestReadFiles(t *testing.T) {
	refused := wire.FileItem{Index: 1, Status: wire.ItemRefused, Reason: sandbox.RefusedNotFound}
	data := func(s string) func(*wire.Writer) { return func(w *wire.Writer) { w.Data([]byte(s)) } }
	say := func(m wire.Message) func(*wire.Writer) {
		return func(w *wire.Writer) { w.Message(wire.TypeItem, m) }
	}
	result := func(count, total int64) func(*wire.Writer) {
		return func(w *wire.Writer) {
			w.Message(wire.TypeResult, wire.FilesResult{Count: count, TotalBytes: total})
		}
	}
	wrong := item(0, "abc")
	wrong.Digest = digestOf([]byte("abd"))
	type script = []func(*wire.Writer)
	for _, c := range []struct {
		name   string
		script script
		want   string
	}{
		{"whole", script{data("ab"), data("c"), say(item(0, "abc")), say(refused), data("z"), say(item(2, "z")), result(3, 4)}, "ok"},
		{"empty file", script{say(item(0, "")), say(refused), say(item(2, "")), result(3, 0)}, "ok"},
		{"short", script{data("abc"), say(item(0, "abc")), say(refused), result(2, 3)}, "protocol count"},
		{"short, announced as whole", script{data("abc"), say(item(0, "abc")), say(refused), result(3, 3)}, "protocol count"},
		{"out of order", script{data("abc"), say(item(1, "abc"))}, "protocol index"},
		{"twice", script{say(item(0, "")), say(item(0, ""))}, "protocol index"},
		{"extra item", script{say(item(0, "")), say(refused), say(item(2, "")), say(item(3, ""))}, "protocol index"},
		{"extra data", script{say(item(0, "")), say(refused), say(item(2, "")), data("x")}, "protocol data"},
		{"data of a refused file", script{say(item(0, "")), data("x"), say(refused)}, "protocol data"},
		{"other size", script{data("ab"), say(item(0, "abc"))}, "protocol size"},
		{"other digest", script{data("abc"), say(wrong)}, "protocol digest"},
		{"other total", script{say(item(0, "")), say(refused), say(item(2, "")), result(3, 9)}, "protocol total_bytes"},
		{"17 MiB in one", script{func(w *wire.Writer) { w.Data(make([]byte, 17<<20)) }}, "protocol data"},
		{"W45 after the result", script{say(item(0, "")), say(refused), say(item(2, "")), result(3, 0), data("x")}, "protocol frame"},
		{"W45 broken after the result", script{say(item(0, "")), say(refused), say(item(2, "")), result(3, 0),
			func(w *wire.Writer) { w.Output(wire.TypeOut, 0, []byte("x")) }}, "protocol frame"},
		{"another frame", script{func(w *wire.Writer) { w.Ping() }}, "protocol body"},
		{"an error in the middle", script{data("abc"), say(item(0, "abc")), func(w *wire.Writer) {
			w.Error(sandbox.NoInstance(sandbox.OpReadFiles, "i1"))
		}}, "SandboxInstanceNotFound i1"},
		{"an error that is none", script{func(w *wire.Writer) { w.Write(wire.Frame{Type: wire.TypeError, Payload: []byte("{}")}) }}, "protocol error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, p *peer, client *Client) {
				p.on(wire.ReadFiles, func(d *delivery) {
					w := d.frames()
					for n, step := range c.script {
						if d.n == 1 && n == min(1, len(c.script)-1) {
							d.drop() // W44: in the middle; the whole batch comes again
						}
						step(w)
					}
				})
				q := sandbox.FilesRead{AllowedRoot: "/r", Files: []sandbox.FileMember{{Path: "/r/a"}, {Path: "/r/b"}, {Path: "/r/c"}}}
				got, err := client.ReadFiles(t.Context(), "i1", q)
				if failure(err) != c.want {
					t.Errorf("%v, want %s", err, c.want)
				}
				if (got == nil) != (err != nil) {
					t.Errorf("%v beside %v", got, err)
				}
				for n, r := range got {
					if n != 1 && (r.Content == nil || r.Refused != "") || n == 1 && r.Refused != sandbox.RefusedNotFound {
						t.Errorf("%d: %+v", n, r)
					}
				}
			})
		})
	}
}

func TestReadFile(t *testing.T) {
	for _, c := range []struct {
		name string
		fill func(w *wire.Writer)
		want string
	}{
		{"whole", func(w *wire.Writer) {
			w.Data([]byte("abc"))
			w.Message(wire.TypeResult, wire.FileResult{Size: 3, Digest: digestOf([]byte("abc"))})
		}, "ok"},
		{"other size", func(w *wire.Writer) {
			w.Data([]byte("ab"))
			w.Message(wire.TypeResult, wire.FileResult{Size: 3, Digest: digestOf([]byte("ab"))})
		}, "protocol size"},
		{"other digest", func(w *wire.Writer) {
			w.Data([]byte("abd"))
			w.Message(wire.TypeResult, wire.FileResult{Size: 3, Digest: digestOf([]byte("abc"))})
		}, "protocol digest"},
		{"over the body's bound", func(w *wire.Writer) { w.Data(make([]byte, 18<<20)) }, "protocol body"},
		{"a refusal", func(w *wire.Writer) {
			w.Error(sandbox.TooLarge(sandbox.OpReadFile, "/r/a", 9))
		}, "SandboxFileTooLarge "},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, p *peer, client *Client) {
				p.on(wire.ReadFile, func(d *delivery) { c.fill(d.frames()) })
				got, err := client.ReadFile(t.Context(), "i1", sandbox.FileRead{Path: "/r/a", AllowedRoot: "/r", MaximumBytes: 9})
				if failure(err) != c.want || err == nil && string(got) != "abc" {
					t.Errorf("%q %v, want %s", got, err, c.want)
				}
			})
		})
	}
}

func TestExecute(t *testing.T) {
	result := wire.ExecuteResult{StartedAt: sandbox.At(start), FinishedAt: sandbox.At(start)}
	zero := int64(0)
	result.ExitCode = &zero
	end := func(w *wire.Writer) { w.Message(wire.TypeResult, result) }
	for _, c := range []struct {
		name string
		fill func(w *wire.Writer)
		want string
	}{
		{"whole", func(w *wire.Writer) {
			w.Output(wire.TypeOut, 0, []byte("ou"))
			w.Output(wire.TypeErr, 0, []byte("err"))
			w.Output(wire.TypeOut, 2, []byte("t"))
			end(w)
		}, "ok"},
		{"a gap", func(w *wire.Writer) { w.Output(wire.TypeOut, 1, []byte("x")); end(w) }, "protocol offset"},
		{"twice", func(w *wire.Writer) {
			w.Output(wire.TypeOut, 0, []byte("x"))
			w.Output(wire.TypeOut, 0, []byte("x"))
		}, "protocol offset"},
		{"data", func(w *wire.Writer) { w.Data([]byte("x")) }, "protocol body"},
		{"over the body's bound", func(w *wire.Writer) { w.Output(wire.TypeOut, 0, make([]byte, 35<<20)) }, "protocol body"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, p *peer, client *Client) {
				p.on(wire.Execute, func(d *delivery) { c.fill(d.frames()) })
				s, err := client.Execute(t.Context(), "i1", sandbox.Command{
					Executable: "x", Arguments: []string{}, Environment: map[string]string{}, WorkingDirectory: "/", TimeoutSeconds: 9,
				})
				if failure(err) != c.want || err == nil && (string(s.Stdout) != "out" || string(s.Stderr) != "err" || *s.Exit.ExitCode != 0) {
					t.Errorf("%+v %v, want %s", s, err, c.want)
				}
			})
		})
	}
}

// A caller that leaves a command ends it: its id is rolled back.
func TestExecuteInterrupted(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, p *peer, c *Client) {
		ctx, cancel := context.WithCancel(t.Context())
		p.on(wire.Execute, func(d *delivery) { cancel(); d.hold() })
		_, err := c.Execute(ctx, "i1", sandbox.Command{Executable: "x", Arguments: []string{}, Environment: map[string]string{}, TimeoutSeconds: 9})
		if err != context.Canceled || len(p.of(wire.RollbackOperation)) != 1 {
			t.Error(err, len(p.of(wire.RollbackOperation)))
		}
	})
}

func TestListings(t *testing.T) {
	page := func(from, to int) wire.DirPage {
		var p wire.DirPage
		for n := from; n < to; n++ {
			p.Entries = append(p.Entries, sandbox.DirEntry{Path: fmt.Sprintf("f%06d", n), Digest: digestOf(nil)})
		}
		return p
	}
	for _, c := range []struct {
		name    string
		pages   []wire.Message
		result  wire.Message
		entries int
		want    string
	}{
		{"empty", nil, wire.ListResult{}, 0, "ok"},
		{"pages", []wire.Message{page(0, 1000), page(1000, 2000), page(2000, 2001)}, wire.ListResult{Count: 2001}, 2001, "ok"},
		{"short", []wire.Message{page(0, 10)}, wire.ListResult{Count: 11}, 0, "protocol count"},
		{"an empty page", []wire.Message{wire.DirPage{Entries: []sandbox.DirEntry{}}}, wire.ListResult{}, 0, "protocol entries"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, p *peer, client *Client) {
				p.on(wire.ListDir, func(d *delivery) {
					w := d.frames()
					for _, m := range c.pages {
						w.Message(wire.TypeItem, m)
					}
					w.Message(wire.TypeResult, c.result)
				})
				got, err := client.ListDir(t.Context(), "i1", sandbox.Listing{Root: "/r", MaxEntries: 9})
				if failure(err) != c.want || len(got) != c.entries || err == nil && got == nil {
					t.Errorf("%d entries, %v, want %s", len(got), err, c.want)
				}
			})
		})
	}
}

// W43: a batch of 128 MiB takes its own size and little more.
func TestBatchMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("128 MiB")
	}
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB
	digest := digestOf(content)
	bubble(t, Options{}, func(t *testing.T, p *peer, c *Client) {
		p.on(wire.ReadFiles, func(d *delivery) {
			w := d.frames()
			size := int64(len(content))
			for n := range int64(8) {
				w.Data(content)
				w.Message(wire.TypeItem, wire.FileItem{Index: n, Status: wire.ItemOK, Size: &size, Digest: digest})
			}
			w.Message(wire.TypeResult, wire.FilesResult{Count: 8, TotalBytes: 8 * size})
		})
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		q := sandbox.FilesRead{AllowedRoot: "/r"}
		for range 8 {
			q.Files = append(q.Files, sandbox.FileMember{Path: "/r/a"})
		}
		got, err := c.ReadFiles(t.Context(), "i1", q)
		runtime.ReadMemStats(&after)
		if err != nil || len(got) != 8 {
			t.Fatal(len(got), err)
		}
		// Allocated in all, garbage included: the results, one file growing to
		// 16 MiB, buffers.
		if total := after.TotalAlloc - before.TotalAlloc; total > 128<<20+72<<20 {
			t.Errorf("%d MiB allocated", total>>20)
		} else {
			t.Logf("%d MiB allocated", total>>20)
		}
	})
}

// Text that no JSON string can hold comes and goes through its escape.
func TestBrokenNames(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, p *peer, c *Client) {
		const name = "/r/\xff\n"
		p.on(wire.WriteFile, func(d *delivery) {
			call, err := wire.ReadCall[wire.FileCall](wire.NewReader(bytes.NewReader(d.body)))
			if err != nil || call.Path != name {
				t.Error(call, err)
			}
			d.fail(sandbox.FailedAt(sandbox.OpWriteFile, call.Path, "outside_root", nil))
		})
		err := c.WriteFile(t.Context(), "i1", sandbox.FileWrite{Path: name, Content: []byte("x")})
		if e, ok := err.(*sandbox.Error); !ok || e.Path != name {
			t.Errorf("%v", err)
		}
		if err := c.WriteFile(t.Context(), "i1", sandbox.FileWrite{Path: "/r/a", Content: make([]byte, 26<<20)}); !strings.HasPrefix(failure(err), "SandboxFileTooLarge") {
			t.Error(err)
		}
	})
}

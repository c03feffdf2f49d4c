package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

func opened() wire.Opened {
	return wire.Opened{
		ProcessID: procID, OutputWindowBytes: wire.DefaultOutputWindowBytes, InputCredit: 64 << 10,
		Evidence: sandbox.EvidenceOf(instance("i1"), procID, sandbox.Enforcement{}, sandbox.At(start), sandbox.At(start)),
	}
}

func outEnd(data string) wire.OutEnd {
	sum := sha256.Sum256([]byte(data))
	return wire.OutEnd{Digest: sandbox.Digest("sha256:" + hex.EncodeToString(sum[:])), Offset: int64(len(data))}
}

func program() sandbox.ProcessRequest {
	return sandbox.ProcessRequest{Executable: "cat", WorkingDirectory: "/"}
}

// streamed runs a process whose stream the peer serves by attach, n from 1.
func streamed(t *testing.T, attach func(d *delivery, q wire.StreamRequest, w *wire.Writer), test func(t *testing.T, p *peer, proc sandbox.Process)) {
	t.Helper()
	bubble(t, Options{}, func(t *testing.T, p *peer, c *Client) {
		p.on(wire.OpenProcess, func(d *delivery) { d.reply(200, opened()) })
		p.on(wire.ProcessStream, func(d *delivery) {
			q, err := wire.Decode[wire.StreamRequest](d.body)
			if err != nil {
				t.Error(err)
			}
			attach(d, q, d.frames())
		})
		proc, err := c.OpenProcess(t.Context(), "i1", procID, program())
		if err != nil {
			t.Fatal(err)
		}
		test(t, p, proc)
	})
}

// all reads a process to its end: output, and how both its reading and its
// waiting ended.
func all(t *testing.T, p sandbox.Process) (out, errs string, exit sandbox.Exit, readErr, waitErr error) {
	t.Helper()
	o, readErr := io.ReadAll(p.Output())
	e, _ := io.ReadAll(p.Error())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	exit, waitErr = p.Wait(ctx)
	return string(o), string(e), exit, readErr, waitErr
}

func ending(w *wire.Writer, out string, errLength int64) {
	w.Message(wire.TypeOutEnd, outEnd(out))
	w.Message(wire.TypeErrEnd, wire.ErrEnd{Offset: errLength})
	w.Message(wire.TypeExit, wire.Exit(sandbox.Exited(3)))
}

// Scripts of one attachment after another, and what comes of them. A script
// that is over is a dropped connection.
func TestStream(t *testing.T) {
	const text = "hello, world\n"
	open := func(w *wire.Writer) { w.Message(wire.TypeOpen, opened()) }
	out := func(at int64, s string) func(*wire.Writer) {
		return func(w *wire.Writer) { w.Output(wire.TypeOut, at, []byte(s)) }
	}
	diag := func(at int64, s string) func(*wire.Writer) {
		return func(w *wire.Writer) { w.Output(wire.TypeErr, at, []byte(s)) }
	}
	say := func(typ wire.Type, m wire.Message) func(*wire.Writer) {
		return func(w *wire.Writer) { w.Message(typ, m) }
	}
	raw := func(typ wire.Type, payload string) func(*wire.Writer) {
		return func(w *wire.Writer) { w.Write(wire.Frame{Type: typ, Payload: []byte(payload)}) }
	}
	end := func(w *wire.Writer) { ending(w, text, 0) }
	other := opened()
	other.Evidence.NetworkMode = sandbox.NetworkAllowlist
	foreign := opened()
	foreign.ProcessID = "pr_22222222222222222222222222222222"
	broken := "x"
	type script = []func(*wire.Writer)
	lostLease := "SandboxLifecycleConflict stale_lease"
	for _, c := range []struct {
		name     string
		scripts  []script
		attaches int
		read     string
		wait     string
	}{
		{"whole", []script{{open, out(0, text), end}}, 1, "ok", "ok"},
		{"any order", []script{{open, say(wire.TypeExit, wire.Exit(sandbox.Exited(3))), say(wire.TypeErrEnd, wire.ErrEnd{}), out(0, text), say(wire.TypeOutEnd, outEnd(text))}}, 1, "ok", "ok"},
		{"W49 at the cursor", []script{{open, out(0, text[:5])}, {open, out(5, text[5:]), end}}, 2, "ok", "ok"},
		{"W50 whole replay", []script{{open, out(0, text[:5])}, {open, out(0, text), end}}, 2, "ok", "ok"},
		{"W51 other chunks", []script{{open, out(0, text[:5])}, {open, out(2, text[2:4]), out(4, text[4:9]), out(9, text[9:]), end}}, 2, "ok", "ok"},
		{"W52 gap", []script{{open, out(0, text[:5]), out(6, text[6:]), end}}, 1, "protocol offset", "protocol offset"},
		{"W53 other bytes", []script{{open, out(0, text[:5])}, {open, out(5, strings.ToUpper(text[5:])), end}}, 2, "protocol out_end.digest", "protocol out_end.digest"},
		{"W54 wrong offset", []script{{open, out(0, text[:5]), end}}, 1, "protocol out_end.offset", "protocol out_end.offset"},
		{"W54 wrong digest", []script{{open, out(0, strings.ToUpper(text)), end}}, 1, "protocol out_end.digest", "protocol out_end.digest"},
		{"W55 no open", []script{{out(0, text), end}}, 1, "protocol frame", "protocol frame"},
		{"W55 second open", []script{{open, open}}, 1, "protocol frame", "protocol frame"},
		{"W55 out after out_end", []script{{open, out(0, text), say(wire.TypeOutEnd, outEnd(text)), out(0, text)}}, 1, "ok", "protocol frame"},
		{"W55 out beyond out_end", []script{{open, out(0, text), say(wire.TypeOutEnd, outEnd(text))}, {open, out(13, "more"), end}}, 2, "ok", "protocol offset"},
		{"W55 two exits", []script{{open, say(wire.TypeExit, wire.Exit(sandbox.Exited(3))), say(wire.TypeExit, wire.Exit(sandbox.Exited(3)))}}, 1, "protocol frame", "ok"},
		{"W55 another exit", []script{{open, say(wire.TypeExit, wire.Exit(sandbox.Exited(3)))}, {open, say(wire.TypeExit, wire.Exit(sandbox.Exited(0)))}}, 2, "protocol exit", "ok"},
		{"W55 both causes", []script{{open, raw(wire.TypeExit, `{"exit_code":0,"signal":"SIGKILL"}`)}}, 1, "protocol exit", "protocol exit"},
		{"W55 no cause", []script{{open, raw(wire.TypeExit, `{}`)}}, 1, "protocol exit", "protocol exit"},
		{"W56 frame of another kind of response", []script{{open, raw(wire.TypeData, "x")}}, 1, "protocol body", "protocol body"},
		{"W57 end without a word", []script{{open, out(0, text)}, {open}, {open}, {open, end}}, 4, "ok", "ok"},
		{"W68 draining", []script{{open, out(0, text), say(wire.TypeDetach, wire.Detach{Reason: wire.DetachDraining})}, {open, end}}, 2, "ok", "ok"},
		{"W69 superseded by another", []script{{open, out(0, text), say(wire.TypeDetach, wire.Detach{Reason: wire.DetachSuperseded, AttachID: wire.NewAttachID()})}}, 1, lostLease, lostLease},
		{"W70 superseded by nobody knows whom", []script{{open, say(wire.TypeDetach, wire.Detach{Reason: wire.DetachSuperseded})}}, 1, lostLease, lostLease},
		{"W88 fenced", []script{{open, out(0, text), say(wire.TypeDetach, wire.Detach{Reason: wire.DetachFenced, LeaseEpoch: 8})}}, 1, lostLease, lostLease},
		{"W71 other evidence", []script{{open}, {say(wire.TypeOpen, other)}}, 2, "protocol evidence", "protocol evidence"},
		{"another process", []script{{say(wire.TypeOpen, foreign)}}, 1, "protocol process_id", "protocol process_id"},
		{"refused", []script{{func(w *wire.Writer) { w.Error(&wire.Error{Tag: wire.TagProcessNotFound}) }}}, 1, "SandboxOperationFailed process_lost", "SandboxOperationFailed process_lost"},
		{"W58 below the window", []script{{func(w *wire.Writer) { w.Error(&wire.Error{Tag: wire.TagOutputTruncated, LowWater: 9}) }}}, 1, "SandboxOperationFailed output_truncated", "ok"},
		{"W60 overtaken", []script{{open, out(0, text), say(wire.TypeTruncated, wire.Truncated{LowWater: 99})}}, 1, "SandboxOperationFailed output_truncated", "ok"},
		{"W81 windows backwards", []script{{open, say(wire.TypeWindow, wire.Window{InputCredit: 9}), say(wire.TypeWindow, wire.Window{InputCredit: 3}), out(0, text), end}}, 1, "ok", "ok"},
		{"a window of what was not sent", []script{{open, say(wire.TypeWindow, wire.Window{InputOffset: 1})}}, 1, "protocol input_offset", "protocol input_offset"},
		{"diagnostics with gaps", []script{{open, diag(0, "ab"), diag(5, "fg"), out(0, text), say(wire.TypeOutEnd, outEnd(text)), say(wire.TypeErrEnd, wire.ErrEnd{Offset: 9}), say(wire.TypeExit, wire.Exit(sandbox.Exited(3)))}}, 1, "ok", "ok"},
		{"err after err_end", []script{{open, say(wire.TypeErrEnd, wire.ErrEnd{}), diag(0, broken)}}, 1, "protocol frame", "protocol frame"},
	} {
		t.Run(c.name, func(t *testing.T) {
			streamed(t, func(d *delivery, q wire.StreamRequest, w *wire.Writer) {
				if d.n > len(c.scripts) {
					t.Errorf("attach %d", d.n)
					d.hold()
					return
				}
				for _, step := range c.scripts[d.n-1] {
					step(w)
				}
				d.drop()
			}, func(t *testing.T, p *peer, proc sandbox.Process) {
				p.on(wire.ProcessWait, func(d *delivery) {
					e := sandbox.Exited(3)
					d.reply(200, wire.Waited{Exit: &e})
				})
				out, _, exit, readErr, waitErr := all(t, proc)
				if got := failure(readErr); got != c.read {
					t.Errorf("output ended with %s (%v), want %s", got, readErr, c.read)
				}
				if readErr == nil && out != text {
					t.Errorf("output %q", out)
				}
				if got := failure(waitErr); got != c.wait {
					t.Errorf("wait ended with %s (%v), want %s", got, waitErr, c.wait)
				}
				if waitErr == nil && (exit.ExitCode == nil || *exit.ExitCode != 3) {
					t.Errorf("exit %+v", exit)
				}
				synctest.Wait()
				attaches := p.of(wire.ProcessStream)
				if len(attaches) != c.attaches {
					t.Errorf("%d attachments", len(attaches))
				}
				// A violation ends the process, and nothing else does.
				violated := strings.HasPrefix(c.read, "protocol") || strings.HasPrefix(c.wait, "protocol")
				if destroyed := len(p.of(wire.ProcessDestroy)); violated != (destroyed == 1) {
					t.Errorf("%d destroys", destroyed)
				}
				seen := map[wire.AttachID]bool{}
				for _, d := range attaches {
					q, _ := wire.Decode[wire.StreamRequest](d.body)
					if seen[q.AttachID] {
						t.Error("an attachment's id twice")
					}
					seen[q.AttachID] = true
				}
			})
		})
	}
}

// W47, W48: cut at every byte, the output is the same.
func TestCutAtEveryByte(t *testing.T) {
	const text = "0123456789abcdef"
	whole := framed(func(w *wire.Writer) {
		w.Message(wire.TypeOpen, opened())
		w.Output(wire.TypeErr, 0, []byte("diagnosis"))
		w.Output(wire.TypeOut, 0, []byte(text[:9]))
		w.Output(wire.TypeOut, 9, []byte(text[9:]))
		ending(w, text, 9)
	})
	endBytes := len(framed(func(w *wire.Writer) { ending(w, text, 9) }))
	cut := 0
	streamed(t, func(d *delivery, q wire.StreamRequest, w *wire.Writer) {
		if cut++; cut < len(whole) {
			flushing{d.w}.Write(whole[:cut])
			d.drop()
		}
		flushing{d.w}.Write(whole)
	}, func(t *testing.T, p *peer, proc sandbox.Process) {
		p.on(wire.ProcessWait, func(d *delivery) { d.reply(200, wire.Waited{Running: true}) }) // many cuts came before open
		out, errs, _, readErr, waitErr := all(t, proc)
		if out != text || errs != "diagnosis" || readErr != nil || waitErr != nil {
			t.Errorf("%q %q %v %v", out, errs, readErr, waitErr)
		}
	})
	for cut := range whole {
		streamed(t, func(d *delivery, q wire.StreamRequest, w *wire.Writer) {
			if d.n == 1 {
				flushing{d.w}.Write(whole[:cut])
				d.drop()
			}
			if d.n == 2 && cut >= len(whole)-endBytes && q.Cursor != int64(len(text)) {
				t.Errorf("cut at %d: cursor %d", cut, q.Cursor)
			}
			flushing{d.w}.Write(whole)
		}, func(t *testing.T, p *peer, proc sandbox.Process) {
			if out, errs, _, readErr, waitErr := all(t, proc); out != text || errs != "diagnosis" || readErr != nil || waitErr != nil {
				t.Errorf("cut at %d: %q %q %v %v", cut, out, errs, readErr, waitErr)
			}
		})
	}
}

// W56: a frame over its bound is refused by its head.
func TestOverlongFrame(t *testing.T) {
	for _, head := range []string{"\x11\x00\x10\x00\x01", "\x11\xff\xff\xff\xff", "\x1e\x00\x00\x00\x00", "\x00\x00\x00\x00\x00"} {
		streamed(t, func(d *delivery, q wire.StreamRequest, w *wire.Writer) {
			w.Message(wire.TypeOpen, opened())
			io.WriteString(flushing{d.w}, head)
			d.hold()
		}, func(t *testing.T, p *peer, proc sandbox.Process) {
			_, err := io.ReadAll(proc.Output())
			if failure(err) != "protocol body" {
				t.Errorf("%x: %v", head, err)
			}
		})
	}
}

// A peer that goes silent is left after three heartbeats and 5 s; one that says
// open and leaves is not hammered.
func TestSilence(t *testing.T) {
	streamed(t, func(d *delivery, q wire.StreamRequest, w *wire.Writer) {
		w.Message(wire.TypeOpen, opened())
		if d.n == 1 {
			d.hold()
			return
		}
		ending(w, "", 0)
	}, func(t *testing.T, p *peer, proc sandbox.Process) {
		began := time.Now()
		if _, _, _, readErr, _ := all(t, proc); readErr != nil || time.Since(began) != 35*time.Second+idlePause {
			t.Error(readErr, time.Since(began))
		}
	})
}

// W66: a day without a byte but heartbeats, on one connection.
func TestIdleDay(t *testing.T) {
	streamed(t, func(d *delivery, q wire.StreamRequest, w *wire.Writer) {
		w.Message(wire.TypeOpen, opened())
		for end := time.Now().Add(24 * time.Hour); time.Now().Before(end); {
			if pause(d.r.Context(), time.Duration(q.HeartbeatMS)*time.Millisecond) != nil {
				t.Error("cut")
				return
			}
			w.Ping()
		}
		w.Output(wire.TypeOut, 0, []byte("morning"))
		ending(w, "morning", 0)
	}, func(t *testing.T, p *peer, proc sandbox.Process) {
		out, err := io.ReadAll(proc.Output())
		if string(out) != "morning" || err != nil || len(p.of(wire.ProcessStream)) != 1 {
			t.Errorf("%q %v, %d attachments", out, err, len(p.of(wire.ProcessStream)))
		}
	})
}

// W67: behind an intermediary that holds a response back until it ends, the
// stream is polled from the third attachment on.
func TestBufferingIntermediary(t *testing.T) {
	const text = "abcdefgh"
	for _, headers := range []bool{true, false} {
		bubble(t, Options{}, func(t *testing.T, p *peer, c *Client) {
			p.on(wire.OpenProcess, func(d *delivery) { d.reply(200, opened()) })
			sent := 0
			p.on(wire.ProcessStream, func(d *delivery) {
				q, _ := wire.Decode[wire.StreamRequest](d.body)
				if q.WaitMS == 0 {
					if headers {
						d.frames()
					}
					d.hold()
					return
				}
				sent++
				w := d.frames()
				w.Message(wire.TypeOpen, opened())
				w.Output(wire.TypeOut, int64(sent-1), []byte(text[sent-1:sent]))
				if sent == len(text) {
					ending(w, text, 0)
					return
				}
				w.Message(wire.TypeDetach, wire.Detach{Reason: wire.DetachPollEnd})
			})
			proc, err := c.OpenProcess(t.Context(), "i1", procID, program())
			if err != nil {
				t.Fatal(err)
			}
			out, _, _, readErr, waitErr := all(t, proc)
			if out != text || readErr != nil || waitErr != nil {
				t.Errorf("%q %v %v", out, readErr, waitErr)
			}
			if n := len(p.of(wire.ProcessStream)); n != 2+len(text) {
				t.Errorf("%d attachments", n)
			}
		})
	}
}

// A delivery of an attachment that came twice supersedes itself.
func TestSupersededByItself(t *testing.T) {
	streamed(t, func(d *delivery, q wire.StreamRequest, w *wire.Writer) {
		w.Message(wire.TypeOpen, opened())
		if d.n == 1 {
			w.Message(wire.TypeDetach, wire.Detach{Reason: wire.DetachSuperseded, AttachID: q.AttachID})
			return
		}
		ending(w, "", 0)
	}, func(t *testing.T, p *peer, proc sandbox.Process) {
		if _, _, _, readErr, waitErr := all(t, proc); readErr != nil || waitErr != nil {
			t.Error(readErr, waitErr)
		}
	})
}

// The pauses between attachments that get nowhere, and none at all after an
// open that came to something.
func TestReattachPauses(t *testing.T) {
	var at []time.Time
	bubble(t, Options{}, func(t *testing.T, p *peer, c *Client) {
		p.on(wire.ProcessWait, func(d *delivery) { d.reply(200, wire.Waited{Running: true}) })
		p.on(wire.OpenProcess, func(d *delivery) { d.reply(200, opened()) })
		p.on(wire.ProcessStream, func(d *delivery) {
			at = append(at, d.arrivedAt)
			if d.n <= 8 {
				d.drop()
			}
			w := d.frames()
			w.Message(wire.TypeOpen, opened())
			if d.n == 9 {
				w.Output(wire.TypeOut, 0, []byte("x"))
				d.drop()
			}
			ending(w, "x", 0)
		})
		proc, err := c.OpenProcess(t.Context(), "i1", procID, program())
		if err != nil {
			t.Fatal(err)
		}
		all(t, proc)
		for i, want := range []time.Duration{0, 250, 500, 1000, 2000, 5000, 5000, 5000, 0} {
			if got := at[i+1].Sub(at[i]); got != want*time.Millisecond {
				t.Errorf("pause %d is %s, want %s", i, got, want*time.Millisecond)
			}
		}
	})
}

// W72: a thousand attachments leave nothing: the bubble would not end.
func TestThousandAttachments(t *testing.T) {
	streamed(t, func(d *delivery, q wire.StreamRequest, w *wire.Writer) {
		w.Message(wire.TypeOpen, opened())
		if d.n <= 1000 {
			w.Output(wire.TypeOut, int64(d.n-1), []byte("x"))
			d.drop()
		}
		ending(w, strings.Repeat("x", 1000), 0)
	}, func(t *testing.T, p *peer, proc sandbox.Process) {
		if out, err := io.ReadAll(proc.Output()); len(out) != 1000 || err != nil {
			t.Error(len(out), err)
		}
	})
}

// Output that nobody reads holds back the stream and nothing else: the exit is
// asked for, standard error flows.
func TestUnreadOutput(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 4*outputBytes/16)
	streamed(t, func(d *delivery, q wire.StreamRequest, w *wire.Writer) {
		w.Message(wire.TypeOpen, opened())
		w.Output(wire.TypeOut, 0, []byte(big))
		ending(w, big, 0)
	}, func(t *testing.T, p *peer, proc sandbox.Process) {
		p.on(wire.ProcessWait, func(d *delivery) {
			if d.n == 1 {
				d.reply(200, wire.Waited{Running: true})
				return
			}
			e := sandbox.Exited(3)
			d.reply(200, wire.Waited{Exit: &e})
		})
		for range 2 {
			if exit, err := proc.Wait(t.Context()); err != nil || *exit.ExitCode != 3 {
				t.Error(exit, err)
			}
		}
		if n := len(p.of(wire.ProcessWait)); n != 2 {
			t.Errorf("asked %d times", n)
		}
		if out, err := io.ReadAll(proc.Output()); string(out) != big || err != nil {
			t.Errorf("%d bytes, %v", len(out), err)
		}
	})
}

// A destroyed process whose output nobody reads holds nobody.
func TestDestroyUnread(t *testing.T) {
	big := bytes.Repeat([]byte("x"), 4*outputBytes)
	streamed(t, func(d *delivery, q wire.StreamRequest, w *wire.Writer) {
		w.Message(wire.TypeOpen, opened())
		w.Output(wire.TypeOut, 0, big)
		ending(w, string(big), 0)
	}, func(t *testing.T, p *peer, proc sandbox.Process) {
		p.on(wire.ProcessWait, (*delivery).hold)
		synctest.Wait()
		for range 2 {
			if err := proc.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if n := len(p.of(wire.ProcessDestroy)); n != 1 {
			t.Errorf("%d destroys", n)
		}
		if exit, err := proc.Wait(t.Context()); err != nil || *exit.ExitCode != 3 {
			t.Error(exit, err)
		}
		out, err := io.ReadAll(proc.Output())
		if len(out) != outputBytes || failure(err) != "SandboxOperationFailed output_truncated" {
			t.Error(len(out), err)
		}
	})
}

// The stream of a destroyed process that never ends is cut.
func TestDestroyWithoutEnd(t *testing.T) {
	streamed(t, func(d *delivery, q wire.StreamRequest, w *wire.Writer) {
		w.Message(wire.TypeOpen, opened())
		for pause(d.r.Context(), time.Second) == nil {
			w.Ping()
		}
	}, func(t *testing.T, p *peer, proc sandbox.Process) {
		if err := proc.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
		began := time.Now()
		_, _, _, readErr, waitErr := all(t, proc)
		if failure(readErr) != "SandboxOperationFailed process_lost" || failure(waitErr) != failure(readErr) || time.Since(began) != drain {
			t.Error(readErr, waitErr, time.Since(began))
		}
	})
}

// Close ends the readers of every stream.
func TestCloseEndsStreams(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, p *peer, c *Client) {
		p.on(wire.OpenProcess, func(d *delivery) { d.reply(200, opened()) })
		p.on(wire.ProcessStream, func(d *delivery) {
			w := d.frames()
			w.Message(wire.TypeOpen, opened())
			w.Output(wire.TypeOut, 0, make([]byte, 3*outputBytes)) // nobody reads it
			d.hold()
		})
		proc, err := c.OpenProcess(t.Context(), "i1", procID, program())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c.Close()
		if _, err := io.Copy(io.Discard, proc.Output()); err == nil {
			t.Error("an end")
		}
		if _, err := proc.Wait(t.Context()); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if _, err := proc.Input().Write([]byte("x")); err == nil {
			t.Error("input was taken")
		}
	})
}

// An opening that got no answer is destroyed by its id.
func TestOpenUnanswered(t *testing.T) {
	bubble(t, Options{Deadline: time.Minute}, func(t *testing.T, p *peer, c *Client) {
		p.on(wire.OpenProcess, (*delivery).drop)
		_, err := c.OpenProcess(t.Context(), "i1", procID, program())
		if failure(err) != "SandboxOperationFailed timed_out" {
			t.Error(err)
		}
		gone := p.of(wire.ProcessDestroy)
		if len(gone) != 1 {
			t.Fatalf("%d destroys", len(gone))
		}
		if q, err := wire.Decode[wire.ProcessRequest](gone[0].body); err != nil || q.ProcessID != procID {
			t.Error(q, err)
		}
	})
}

package examples

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// TestDurableRemembers: what was answered of a snapshot before a crash is answered
// after it, what was undone stays undone, and an epoch that was overtaken stays
// so. What no answer names is gone.
func TestDurableRemembers(t *testing.T) {
	ofEach(t, "", func(t *testing.T, d *durable) {
		id, q := d.machine(t, "lease")
		d.sh(t, id, "echo kept > file")
		first, undone, later := capture(id, "lease"), capture(id, "lease"), capture(id, "lease")
		told := d.answers(t, first, http.StatusOK, "snapshot_id")
		d.answers(t, undone, http.StatusOK, "snapshot_id")
		d.answers(t, undone.undo(), http.StatusOK, "settled")
		d.answers(t, later, http.StatusOK, "snapshot_id")
		released, err := d.Release(t.Context(), id, sandbox.ReleaseRequest{ExpiresAt: sandbox.At(time.Now().Add(time.Hour))})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := d.deliver(t.Context(), delivery{endpoint: wire.ProcessWait, lease: "lease", epoch: 7, body: wire.WaitRequest{InstanceID: id, ProcessID: wire.NewProcessID()}}); err != nil {
			t.Fatal(err)
		}
		never := capture(id, "lease")
		never.epoch = 7
		d.answers(t, never.undo(), http.StatusConflict, `"lease_epoch":7`) // at epoch 1
		tombstone := never.undo()
		tombstone.epoch = 7
		d.answers(t, tombstone, http.StatusOK, "settled")

		if err := d.crash(); err != nil {
			t.Fatal(err)
		}
		for _, leftover := range []string{"snapshots/snap-half", "run-half/inst-1/mount-0/file"} {
			path := filepath.Join(d.state, leftover)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("half"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(d.state, "run-half")); !errors.Is(err, os.ErrNotExist) || len(d.files(t)) != 3 {
			t.Errorf("%v is there, and run-half: %v", d.files(t), err)
		}
		d.answers(t, first, http.StatusConflict, `"lease_epoch":7`)
		first.epoch, undone.epoch, later.epoch = 7, 7, 7
		if again := d.answers(t, first, http.StatusOK, ""); !bytes.Equal(again, told) {
			t.Errorf("%s, and then %s", told, again)
		}
		d.answers(t, undone, http.StatusConflict, "WireOperationRolledBack")
		d.answers(t, never, http.StatusConflict, "WireOperationRolledBack")
		gone := handed(t, d.answers(t, later, http.StatusOK, ""))
		late := later.undo()
		late.epoch = 7
		d.answers(t, late, http.StatusOK, "settled")
		if _, err := d.resume(t, q, gone); !errors.Is(err, &sandbox.Error{Kind: sandbox.SnapshotNotFound}) {
			t.Errorf("it was rolled back: %v", err)
		}
		for _, s := range []sandbox.Snapshot{handed(t, told), *released.Value.Snapshot} {
			again, err := d.resume(t, q, s)
			if err != nil {
				t.Fatal(err)
			}
			if got := d.sh(t, again, "cat file"); got != "kept\n" {
				t.Error(got)
			}
		}
		if _, err := d.restart(t.Context()); err != nil { // also what was learnt after the first start
			t.Fatal(err)
		}
		late = first.undo()
		late.epoch = 7
		d.answers(t, late, http.StatusConflict, "owned") // a resumption named it
		second := exec.CommandContext(t.Context(), d.path)
		second.Env = append(os.Environ(), "CHECKFU_LISTEN=unix:"+d.socket()+"2", "CHECKFU_TOKEN="+token, "CHECKFU_STATE="+d.state)
		if out, err := second.CombinedOutput(); second.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "held by another") {
			t.Errorf("a second one on the same state: %v, %s", err, out)
		}
		if swept := d.sweep(t); len(swept) != 2 || len(d.files(t)) != 0 {
			t.Errorf("%v, and then %v", swept, d.files(t))
		}
	})
}

// TestDurableRefusesOtherBytes: nothing is made of a snapshot whose bytes are not
// those that were kept.
func TestDurableRefusesOtherBytes(t *testing.T) {
	ofEach(t, "", func(t *testing.T, d *durable) {
		id, q := d.machine(t, "lease")
		d.sh(t, id, "echo kept > file")
		h, err := d.Snapshot(t.Context(), id, sandbox.SnapshotRequest{ExpiresAt: sandbox.At(time.Now().Add(time.Hour))})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(d.state, "snapshots", string(h.Value.SnapshotID))
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for name, data := range map[string][]byte{
			"a byte is another":  bytes.Replace(whole, []byte("kept"), []byte("kepT"), 1),
			"a length is longer": bytes.Replace(whole, []byte{0x11, 0, 0}, []byte{0x11, 0x7f, 0}, 1),
			"it is shorter":      whole[:len(whole)-1],
			"it is longer":       append(slices.Clone(whole), 0),
			"it is empty":        {},
			"it is not there":    nil,
		} {
			if bytes.Equal(data, whole) {
				t.Fatalf("%s: nothing is changed", name)
			}
			err := os.WriteFile(path, data, 0o600)
			if data == nil {
				err = os.Remove(path)
			}
			if err != nil {
				t.Fatal(err)
			}
			_, resumed := d.resume(t, q, h.Value)
			_, cloned := d.CloneSnapshot(t.Context(), sandbox.CloneRequest{Snapshot: h.Value, TargetSessionID: "another"})
			for member, err := range map[string]error{"resume": resumed, "clone": cloned} {
				if !errors.Is(err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonChanged}) {
					t.Errorf("%s where %s: %v", member, name, err)
				}
			}
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := d.resume(t, q, h.Value); err != nil {
			t.Errorf("as it was: %v", err)
		}
		runs, err := filepath.Glob(filepath.Join(d.state, "run-*", "*"))
		if err != nil || len(runs) > 2 || !slices.Equal(d.files(t), []string{string(h.Value.SnapshotID)}) {
			t.Errorf("left: %v, %v, %v", runs, d.files(t), err)
		}
		d.sweep(t)
	})
}

// TestDurableKeepsOddFiles: a tree of everything that a workload can make comes
// back as it was, and cannot make the provider write anywhere else.
func TestDurableKeepsOddFiles(t *testing.T) {
	if _, err := os.Stat(guestPython); err != nil {
		t.Skip("no " + guestPython)
	}
	ofEach(t, "", func(t *testing.T, d *durable) {
		id, q := d.machine(t, "lease")
		sized := strings.NewReplacer()
		if strings.HasSuffix(t.Name(), "typescript") { // it reads what is a hole, for it knows of none
			sized = strings.NewReplacer("50G", "600M", "40G", "400M")
		}
		d.sh(t, id, sized.Replace(`
python3 -c '
import os, socket
for name in (b"caf\xe9", b"a\nb", b"-x", b"\\", b" "):
    open(name, "wb").write(name)
for n in range(700):
    os.mkdir("deep"); os.chdir("deep")
open("bottom", "w").write("down")'
mkdir dir hidden && echo inner > dir/inner && ln -s /etc dir/etc && ln -s ../../../../../../etc/passwd up && ln file hard 2>/dev/null || :
echo one > one && ln one two && : > empty && mkfifo fifo && cp /bin/true suid && chmod 4755 suid && chmod 1777 dir && touch -d 2001-02-03T04:05:06Z one
truncate -s 50G holes && printf end | dd of=holes bs=1 seek=40G conv=notrunc 2>/dev/null
chmod 0 hidden
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'`))
		look := sized.Replace(`
find . -path './deep/*' -prune -o -printf '%y %m %n %l %p\n' | sort
stat -c '%Y %s' one holes empty; tail -c 3 holes; dd if=holes bs=1 skip=40G count=3 2>/dev/null
python3 -c '
import os
while os.path.isdir("deep"): os.chdir("deep")
print(open("bottom").read())'`)
		before := d.sh(t, id, look)
		h, err := d.Snapshot(t.Context(), id, sandbox.SnapshotRequest{ExpiresAt: sandbox.At(time.Now().Add(time.Hour))})
		if err != nil {
			t.Fatal(err)
		}
		again, err := d.resume(t, q, h.Value)
		if err != nil {
			t.Fatal(err)
		}
		// A pipe and a socket have no bytes, and what has two names is two.
		want := strings.NewReplacer("p 644 1  ./fifo\n", "", "s 755 1  ./socket\n", "", " 2  ./one\n", " 1  ./one\n", " 2  ./two\n", " 1  ./two\n").Replace(before)
		if got := d.sh(t, again, look); got != want || want == before {
			t.Errorf("%s\nand before\n%s", got, want)
		}
		info, err := os.Stat(filepath.Join(d.state, "snapshots", string(h.Value.SnapshotID)))
		if err != nil || info.Size() > 4<<20 {
			t.Errorf("%v, %v: a file of holes is kept with its zeros", info, err)
		}
		d.sh(t, again, `python3 -c '
import os
for n in range(2500):
    os.mkdir("x"); os.chdir("x")'`)
		_, err = d.Snapshot(t.Context(), again, sandbox.SnapshotRequest{ExpiresAt: sandbox.At(time.Now().Add(time.Hour))})
		if !errors.Is(err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonTooManyEntries}) {
			t.Errorf("deeper than anybody needs: %v", err)
		}
		if left := d.sweep(t); len(left) != 1 {
			t.Error(left)
		}
	})
}

// TestDurableDiskFull: a disk that is full leaves no part of a snapshot and keeps
// no instance from its next one.
func TestDurableDiskFull(t *testing.T) {
	if _, err := exec.LookPath("unshare"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root and unshare, for a small disk")
	}
	ofEach(t, `mkdir -p "$CHECKFU_STATE"
exec unshare -m sh -c 'mount -t tmpfs -o size=8m,mode=700 none "$CHECKFU_STATE" && exec "$0"' PROVIDER`, func(t *testing.T, d *durable) {
		host := d.state
		d.state = filepath.Join("/proc", strconv.Itoa(d.cmd.Process.Pid), "root", host)
		t.Cleanup(func() { d.state = host })
		id, q := d.machine(t, "lease")
		d.sh(t, id, "head -c 20M /dev/urandom > big; echo kept > file")
		refused := func(err error) {
			t.Helper()
			if !errors.Is(err, &sandbox.Error{Kind: sandbox.CapabilityUnavailable, Requirement: sandbox.RequireResources}) || len(d.files(t)) > 0 {
				t.Errorf("%v, and %v", err, d.files(t))
			}
		}
		deadline := sandbox.At(time.Now().Add(time.Hour))
		_, err := d.Snapshot(t.Context(), id, sandbox.SnapshotRequest{ExpiresAt: deadline})
		refused(err)
		_, err = d.Release(t.Context(), id, sandbox.ReleaseRequest{ExpiresAt: deadline})
		refused(err)
		// The journal has no room either: what it cannot remember did not happen.
		filler, err := os.Create(filepath.Join(d.state, "filler"))
		if err != nil {
			t.Fatal(err)
		}
		for n := 1 << 20; n > 0; n /= 2 {
			for err = nil; err == nil; {
				_, err = filler.Write(make([]byte, n))
			}
		}
		d.sh(t, id, "rm big")
		_, err = d.Snapshot(t.Context(), id, sandbox.SnapshotRequest{ExpiresAt: deadline})
		refused(err)
		if err := errors.Join(filler.Close(), os.Remove(filler.Name())); err != nil {
			t.Fatal(err)
		}
		h, err := d.Release(t.Context(), id, sandbox.ReleaseRequest{ExpiresAt: deadline})
		if err != nil {
			t.Fatal(err)
		}
		again, err := d.resume(t, q, *h.Value.Snapshot)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.sh(t, again, "cat file"); got != "kept\n" {
			t.Error(got)
		}
	})
}

// TestDurableKilledWhileCapturing: a provider that is killed at any point keeps
// every snapshot that it answered, and of the others all or nothing.
func TestDurableKilledWhileCapturing(t *testing.T) {
	ofEach(t, "", func(t *testing.T, d *durable) {
		for round := range 4 {
			lease := "lease" + strconv.Itoa(round)
			id, q := d.machine(t, lease)
			d.sh(t, id, "head -c 12M /dev/urandom > big; sha256sum big > sum")
			answered, over := make(chan []byte, 10000), make(chan struct{})
			go func() {
				defer close(over)
				for {
					_, body, err := d.deliver(t.Context(), capture(id, lease))
					if err != nil {
						return
					}
					answered <- body
				}
			}()
			until(t, "no snapshot comes so far", func() bool { return len(answered) > 0 && d.last(t) >= int64(round)*3<<20 })
			if err := d.crash(); err != nil {
				t.Fatal(err)
			}
			<-over
			close(answered)
			if err := d.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			there := d.files(t)
			var last sandbox.Snapshot
			for body := range answered {
				if last = handed(t, body); !slices.Contains(there, string(last.SnapshotID)) {
					t.Fatalf("%s was answered and is gone", last.SnapshotID)
				}
			}
			again, err := d.resume(t, q, last)
			if err != nil {
				t.Fatal(err)
			}
			d.sh(t, again, "sha256sum -c sum")
			swept := d.sweep(t)
			slices.Sort(swept)
			if !slices.Equal(swept, there) {
				t.Errorf("%v is there, of which %v are snapshots", there, swept)
			}
		}
	})
}

// TestDurableListingEnds: nobody digests a file without end for a caller who went,
// or of an instance that is gone.
func TestDurableListingEnds(t *testing.T) {
	ofEach(t, "", func(t *testing.T, d *durable) {
		for _, leave := range []string{"caller", "instance"} {
			id, _ := d.machine(t, leave)
			d.sh(t, id, "truncate -s 60G zeros")
			ctx, cancel := context.WithCancel(t.Context())
			over := make(chan error, 1)
			go func() {
				_, err := d.Optional().ListDir.ListDir(ctx, id, sandbox.Listing{Root: sandbox.OutputPath, MaxEntries: 9})
				over <- err
			}()
			reading := func() bool { return open(t, d.cmd.Process.Pid, "/zeros") }
			until(t, "it does not read", reading)
			if leave == "caller" {
				cancel()
			} else if err := d.Destroy(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			until(t, "it reads on", func() bool { return !reading() })
			if err := <-over; err == nil {
				t.Error("it listed")
			}
			cancel()
		}
	})
}

// open says whether a process has a file open whose path contains name.
func open(t *testing.T, pid int, name string) bool {
	t.Helper()
	links, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "fd", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(links, func(link string) bool {
		path, _ := os.Readlink(link)
		return strings.Contains(path, name)
	})
}

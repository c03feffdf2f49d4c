package keeper

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/client"
)

func TestWhoeverMayNotStaysOut(t *testing.T) {
	dir := stateDir(t)
	r := start(t, dir, "s")
	at := placeOf(dir, "s")
	for name, want := range map[string]os.FileMode{".": 0o700, "..": 0o700, socketName: 0o600, tokenName: 0o600, recordName: 0o600, lockName: 0o600, logName: 0o600} {
		if info, err := os.Lstat(filepath.Join(at.dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	held, path, err := at.socket()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	for _, token := range []string{"", strings.Repeat("x", 40)} {
		_, err := client.Dial(t.Context(), client.Options{Base: "unix:" + path, Token: token, Lease: wire.Lease{ID: r.LeaseID, Epoch: 1}})
		if e, ok := errors.AsType[*wire.Error](err); !ok || e.Tag != wire.TagUnauthenticated {
			t.Errorf("token %q: %v", token, err)
		}
	}
	// Another lease runs nothing here, also with the token.
	token, _ := at.read(tokenName)
	c, err := client.Dial(t.Context(), client.Options{Base: "unix:" + path, Token: strings.TrimSpace(string(token)), Lease: wire.Lease{ID: "other", Epoch: 9}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := run(t.Context(), &Session{Record: r, Client: c}, "echo"); !errors.Is(err, &sandbox.Error{Kind: sandbox.LifecycleConflict}) {
		t.Error("another lease:", err)
	}
	if got := execute(t, dir, "s", "echo here"); got != "here\n" {
		t.Errorf("%q", got)
	}
	if os.Geteuid() != 0 {
		t.Skip("another user's attempt needs root")
	}
	for parent := dir; parent != "/" && parent != os.TempDir(); parent = filepath.Dir(parent) {
		if err := os.Chmod(parent, 0o711); err != nil { // it is the session that must keep them out
			t.Fatal(err)
		}
	}
	cmd := exec.Command("/bin/sh", "-c", `ls "$0" || cat "$0/token" || echo >"$0/s"`, at.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err == nil || strings.Count(string(out), "ermission denied") != 3 {
		t.Errorf("%v: %s", err, out)
	}
}

// No request may come in the keeper's own name from a page or another program.
func TestTheSocketSpeaksTheWireAlone(t *testing.T) {
	dir := stateDir(t)
	start(t, dir, "s")
	held, path, err := placeOf(dir, "s").socket()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	tr := &http.Transport{DialContext: (&unixDialer{path}).dial}
	defer tr.CloseIdleConnections()
	r, err := (&http.Client{Transport: tr}).Get("http://localhost/capabilities")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode < 400 {
		t.Errorf("status %d", r.StatusCode)
	}
}

func TestRecordsAreReadStrictly(t *testing.T) {
	dir := stateDir(t)
	r := start(t, dir, "s")
	for name, change := range map[string]func(*Record){
		"schema": func(r *Record) { r.Schema = "x" }, "id": func(r *Record) { r.SessionID = "../x" },
		"another's": func(r *Record) { r.SessionID = "other" }, "state": func(r *Record) { r.State = StateLost },
		"pid": func(r *Record) { r.PID = 0 }, "expiry": func(r *Record) { r.ExpiresAt = "soon" }, "machine": func(r *Record) { r.Instance = nil },
		"paused without a snapshot": func(r *Record) { r.State, r.KeepMillis = StatePaused, 1 },
		"paused and keeps nothing":  func(r *Record) { r.State, r.Snapshot = StatePaused, &keptSnapshot },
		"snapshot":                  func(r *Record) { r.Snapshot = &sandbox.Snapshot{} },
		"registries":                func(r *Record) { r.Registries = "registries.json" },
		"keep":                      func(r *Record) { r.KeepMillis = MaxKeep.Milliseconds() + 1 },
	} {
		bad := r
		change(&bad)
		at := place{filepath.Join(t.TempDir(), "s")}
		if err := errors.Join(os.Mkdir(at.dir, 0o700), at.write(bad)); err != nil {
			t.Fatal(err)
		}
		if _, err := at.record(); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func FuzzRecord(f *testing.F) {
	r := Record{Schema: RecordSchema, SessionID: "s", Provider: "memory", State: StateStarting, PID: 1, CreatedAt: "2026-01-01T00:00:00.000Z", ExpiresAt: "2026-01-01T00:00:00.000Z"}
	seed, err := canonical.Encode(r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	r.State, r.KeepMillis, r.Instance, r.Snapshot = StatePaused, 3600000, &sandbox.Instance{}, &keptSnapshot
	if seed, err = canonical.Encode(r); err != nil {
		f.Fatal(err)
	}
	if _, err := parseRecord(seed); err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	r.State, r.Leaving = StateActive, r.ExpiresAt
	if seed, err = canonical.Encode(r); err != nil {
		f.Fatal(err)
	}
	if _, err := parseRecord(seed); err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := parseRecord(body)
		if err != nil {
			return
		}
		if again, err := canonical.Encode(r); err != nil || string(again) != string(body) {
			if _, err := parseRecord(again); err != nil {
				t.Errorf("%s: %s, %v", body, again, err)
			}
		}
	})
}

func FuzzSaid(f *testing.F) {
	for _, m := range []said{
		{Word: begin, Inputs: &Inputs{Dir: "/d", SessionID: "s", Provider: "memory", LeaseID: "l", ExpiresAt: "2026-01-01T00:00:00.000Z", Model: "/m"}},
		{Word: begin, Inputs: &Inputs{Dir: "/d", SessionID: "s", Provider: "memory", LeaseID: "l", ExpiresAt: "2026-01-01T00:00:00.000Z", KeepMillis: 3600000, Live: true, Registries: "/r", Resume: true}}, {Word: failed, Kind: Refused, Text: "x"}, {Word: kept},
	} {
		line, err := canonical.Encode(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := parseSaid(line)
		if err == nil && m.Word == begin && (m.Inputs == nil || m.Inputs.validate() != nil) {
			t.Errorf("%s", line)
		}
	})
}

var keptSnapshot = sandbox.Snapshot{
	SnapshotID: "snap", Provider: "memory", Placement: sandbox.PlacementLocal, SourceInstanceID: "i", WorkspaceID: "w", SessionID: "s",
	ProfileID: "p", ProfileVersion: 1, ProfileDigest: sandbox.Digest("sha256:" + strings.Repeat("0", 64)),
	CreatedAt: "2026-01-01T00:00:00.000Z", ExpiresAt: "2026-01-01T00:00:01.000Z",
}

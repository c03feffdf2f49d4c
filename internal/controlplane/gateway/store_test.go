package gateway

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/sandbox"
)

func TestStore(t *testing.T) {
	clock := newClock()
	s := openStore(t, t.TempDir(), clock)
	good := Lease{RunID: "r", LeaseID: "l", LeaseEpoch: 2, ExpiresAt: clock.now.Add(time.Hour), Models: []string{"m"}, Ceiling: Ceiling{Requests: 7}}
	first, err := s.Grant(good)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*Lease){
		"no run": func(l *Lease) { l.RunID = "" }, "no lease": func(l *Lease) { l.LeaseID = "" }, "a long id": func(l *Lease) { l.RunID = strings.Repeat("x", 300) },
		"no epoch": func(l *Lease) { l.LeaseEpoch = 0 }, "no end": func(l *Lease) { l.ExpiresAt = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC) },
		"the same epoch": func(*Lease) {}, "an older one": func(l *Lease) { l.LeaseEpoch = 1 },
		"another run's": func(l *Lease) { l.LeaseEpoch, l.RunID = 9, "r2" }, "no model": func(l *Lease) { l.Models = []string{""} },
		"many models": func(l *Lease) { l.Models = make([]string, MaxModels+1) }, "less than nothing": func(l *Lease) { l.Ceiling.Requests = -1 },
	} {
		l := good
		change(&l)
		if token, err := s.Grant(l); err == nil || token != "" {
			t.Error(what)
		}
	}
	if l, err := s.Lookup(route.TokenDigest(first)); err != nil || fmt.Sprint(l) != fmt.Sprint(good) {
		t.Errorf("%+v, %v", l, err)
	}
	for _, nobodys := range []string{first, "", route.TokenDigest("")} {
		if _, err := s.Lookup(nobodys); !errors.Is(err, ErrNoLease) {
			t.Errorf("%q stands for something", nobodys)
		}
	}
	if err := errors.Join(s.Add("l", Usage{Requests: 1, InputTokens: 5}), s.Add("l", Usage{Requests: 1})); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Revoke("l", 2), s.Revoke("l", 2)); err != nil {
		t.Error(err)
	}
	if err := s.Revoke("l2", 1); !errors.Is(err, ErrNoLease) {
		t.Error(err)
	}
	if err := s.Add("l2", Usage{}); !errors.Is(err, ErrNoLease) {
		t.Error(err)
	}
	if _, err := s.Lookup(route.TokenDigest(first)); !errors.Is(err, ErrNoLease) {
		t.Error(err)
	}
	_, err = s.Grant(good)
	if fence, ok := errors.AsType[*FenceError](err); !ok || fence.Least != 3 {
		t.Error(err)
	}
	good.LeaseEpoch = 3 // what the run has used stays
	second, err := s.Grant(good)
	if u, usedErr := s.Used("r"); err != nil || usedErr != nil || u != (Usage{Requests: 2, InputTokens: 5}) {
		t.Errorf("%+v, %v, %v", u, err, usedErr)
	}
	// Who lost it does not end it.
	var fence *FenceError
	if err := s.Revoke("l", 2); !errors.As(err, &fence) || fence.Least != 3 {
		t.Error(err)
	}
	if err := s.Revoke("l", 4); !errors.Is(err, ErrNoLease) {
		t.Error(err)
	}
	if list := s.List(); len(list) != 1 || !list[0].Live || list[0].Used.Requests != 2 {
		t.Errorf("%+v", list)
	}
	// Nothing in the store is a token, in memory or on the disk.
	for _, path := range files(t, s.dir) {
		text, err := os.ReadFile(path)
		if err != nil || strings.Contains(string(text), second) || strings.Contains(string(text), route.TokenPrefix) {
			t.Errorf("%s: %s, %v", path, text, err)
		}
	}
	if strings.Contains(fmt.Sprintf("%+v", s.tokens), second) {
		t.Error("a token is kept")
	}
	// A lease stays for a day after its expiry, however early it ended, and is
	// forgotten at a later grant.
	if err := s.Revoke("l", 3); err != nil {
		t.Fatal(err)
	}
	clock.advance(keepAfter + time.Second)
	other := Lease{RunID: "r3", LeaseID: "l3", LeaseEpoch: 1, ExpiresAt: clock.now.Add(time.Hour)}
	if _, err := s.Grant(other); err != nil || len(s.List()) != 2 {
		t.Fatalf("%+v, %v", s.List(), err)
	}
	clock.advance(time.Hour)
	other.LeaseEpoch, other.ExpiresAt = 2, clock.now.Add(time.Hour)
	if _, err := s.Grant(other); err != nil {
		t.Fatal(err)
	}
	if list := s.List(); len(list) != 1 || list[0].RunID != "r3" || len(files(t, s.dir)) != 1 || len(s.runs) != 1 || len(s.tokens) != 1 {
		t.Errorf("%+v, %v", list, files(t, s.dir))
	}
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"+fileSuffix))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// What was granted, ended and counted is so after a restart, and the fence holds.
func TestStoreOutlivesItsProcess(t *testing.T) {
	dir := t.TempDir()
	end := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	s, err := OpenStore(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[string]string{}
	for _, l := range []Lease{
		{RunID: "r1", LeaseID: "live", LeaseEpoch: 4, ExpiresAt: end, Models: []string{"a", "b"}, Ceiling: Ceiling{1, 2, 3, 4}},
		{RunID: "r2", LeaseID: "ended", LeaseEpoch: 1, ExpiresAt: end, Models: []string{}},
		{RunID: "r3", LeaseID: "all", LeaseEpoch: 1, ExpiresAt: end},
	} {
		if tokens[l.LeaseID], err = s.Grant(l); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Revoke("ended", 1), s.Add("live", Usage{Requests: 3, OutputTokens: 9})); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStore(dir, nil); !errors.Is(err, ErrHeld) {
		t.Errorf("two have it: %v", err)
	}
	want := fmt.Sprint(s.List())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, dir, nil)
	if got := fmt.Sprint(s.List()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for lease, live := range map[string]bool{"live": true, "ended": false, "all": true} {
		if _, err := s.Lookup(route.TokenDigest(tokens[lease])); (err == nil) != live {
			t.Errorf("%s: %v", lease, err)
		}
	}
	if l, err := s.find("ended"); err != nil || l.Models == nil || len(l.Models) != 0 {
		t.Errorf("a lease of no model became one of all: %+v, %v", l, err)
	}
	if u, err := s.Used("r1"); err != nil || u.OutputTokens != 9 {
		t.Errorf("%+v, %v", u, err)
	}
	if _, err := s.Grant(Lease{RunID: "r1", LeaseID: "live", LeaseEpoch: 4, ExpiresAt: end}); err == nil {
		t.Error("the fence fell")
	}
}

// A directory that is not this user's alone, or holds what no store wrote, is
// refused as it is: nothing in it is dropped.
func TestStoreRefuses(t *testing.T) {
	good, err := canonical.Encode(recordOf(Lease{RunID: "r", LeaseID: "l", LeaseEpoch: 1, ExpiresAt: time.Now()}, ""))
	if err != nil {
		t.Fatal(err)
	}
	at := func(dir string) string { return fileOf(dir, "l") }
	for name, spoil := range map[string]func(dir string) error{
		"others write it":    func(dir string) error { return os.Chmod(dir, 0o777) },
		"half a file":        func(dir string) error { return os.WriteFile(at(dir), good[:len(good)/2], 0o600) },
		"an empty file":      func(dir string) error { return os.WriteFile(at(dir), nil, 0o600) },
		"another's name":     func(dir string) error { return os.WriteFile(fileOf(dir, "x"), good, 0o600) },
		"a link":             func(dir string) error { return os.Symlink("/etc/hostname", at(dir)) },
		"a directory inside": func(dir string) error { return os.Mkdir(at(dir), 0o700) },
		"a long file":        func(dir string) error { return os.WriteFile(at(dir), make([]byte, maxRecordBytes+1), 0o600) },
	} {
		dir := filepath.Join(t.TempDir(), "store")
		if err := errors.Join(os.Mkdir(dir, 0o700), spoil(dir)); err != nil {
			t.Fatal(err)
		}
		s, err := OpenStore(dir, nil)
		if failed, ok := errors.AsType[*StoreError](err); !ok || !strings.HasPrefix(failed.Path, dir) {
			t.Errorf("%s: %v", name, err)
		}
		if s != nil {
			s.Close()
		}
		if name != "others write it" && len(files(t, dir)) != 1 {
			t.Errorf("%s: it was dropped", name)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, file + "/x", "/proc/self"} {
		if _, err := OpenStore(dir, nil); err == nil {
			t.Error(dir)
		}
	}
	// What never got its name was never answered.
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(dir, 0o700), os.WriteFile(filepath.Join(dir, newName), good[:7], 0o600)); err != nil {
		t.Fatal(err)
	}
	if s := openStore(t, dir, nil); len(s.List()) != 0 {
		t.Error(s.List())
	}
}

// A disk that fails grants nothing and forgets nothing: counts are known and
// written when it is well again, and until then the run has no request.
func TestStoreDiskFails(t *testing.T) {
	s := begin(t, scripted, nil)
	blocker := filepath.Join(s.leases.dir, newName)
	if err := os.Mkdir(blocker, 0o700); err != nil { // a file cannot be opened over it
		t.Fatal(err)
	}
	if _, err := s.leases.Grant(Lease{RunID: "r", LeaseID: "x", LeaseEpoch: 1, ExpiresAt: s.clock.now.Add(time.Hour)}); err == nil {
		t.Error("a lease that is nowhere")
	}
	if _, err := s.leases.find("x"); !errors.Is(err, ErrNoLease) {
		t.Error(err)
	}
	ask := func(want int) {
		t.Helper()
		if status, _, body, err := s.ask(s.request("POST", "/v1/messages", `{"model":"m"}`)); err != nil || status != want {
			t.Errorf("%d %q, %v", status, body, err)
		}
	}
	ask(200)
	s.log.line(t, 1) // the client has its answer before it is counted
	if _, err := s.leases.Used("run_1"); err == nil {
		t.Error("a count is kept nowhere")
	}
	ask(503)
	if err := os.Remove(blocker); err != nil {
		t.Fatal(err)
	}
	ask(200)
	s.log.line(t, 3)
	if u := s.used("run_1"); u.Requests != 2 {
		t.Errorf("%+v", u)
	}
	if err := os.Mkdir(blocker, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.leases.Revoke("lea_1", 1); err == nil {
		t.Error("an end that is nowhere")
	}
	ask(401)
}

// storeChild grants, counts and ends until it is killed, and says each when it has
// its answer.
func storeChild() int {
	s, err := OpenStore(os.Args[1], nil)
	if err != nil {
		return 12
	}
	end := time.Now().Add(time.Hour)
	for epoch := int64(1); ; epoch++ {
		token, err := s.Grant(Lease{RunID: "r", LeaseID: "l", LeaseEpoch: epoch, ExpiresAt: end})
		if err != nil {
			return 13
		}
		fmt.Println("granted", epoch, route.TokenDigest(token))
		if s.Add("l", Usage{Requests: 1}) != nil {
			return 14
		}
		fmt.Println("counted", epoch)
	}
}

// Whenever its process is killed, a store opens again and holds what was answered:
// the epoch, its token, and no count less.
func TestStoreKilled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	for _, lines := range []int{1, 2, 9, 40} {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/proc/self/exe", dir)
		cmd.Env = []string{"CHECKFU_TEST_CHILD=store"}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said := bufio.NewScanner(out)
		var epoch, counted int64
		var digest string
		for n := 0; said.Scan(); n++ { // to what it had said when it died
			if n == lines {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			granted, _ := fmt.Sscanf(said.Text(), "granted %d %s", &epoch, &digest)
			if added, _ := fmt.Sscanf(said.Text(), "counted %d", &counted); granted+added == 0 {
				t.Fatal(said.Text())
			}
		}
		_ = cmd.Wait()
		s := openStore(t, dir, nil)
		l, err := s.find("l")
		if err != nil || l.LeaseEpoch < epoch || l.LeaseEpoch > epoch+1 {
			t.Errorf("epoch %d, said %d: %v", l.LeaseEpoch, epoch, err)
		}
		if _, err := s.Lookup(digest); l.LeaseEpoch == epoch && err != nil {
			t.Errorf("the token of epoch %d: %v", epoch, err)
		}
		if u, err := s.Used("r"); err != nil || u.Requests < counted || u.Requests > counted+1 {
			t.Errorf("%d requests, said %d: %v", u.Requests, counted, err)
		}
		s.Close()
	}
}

func FuzzParseRecord(f *testing.F) {
	for _, r := range []record{
		recordOf(Lease{RunID: "r", LeaseID: "l", LeaseEpoch: 1, ExpiresAt: time.Unix(1, 0)}, ""),
		recordOf(Lease{RunID: "r", LeaseID: "l", LeaseEpoch: 9, ExpiresAt: time.Unix(1, 0), Models: []string{"m"}, Ceiling: Ceiling{1, 2, 3, 4}}, canonical.Digest(nil)),
	} {
		text, err := canonical.Encode(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseRecord(text)
		if err != nil {
			return
		}
		again := recordOf(r.lease(), r.TokenDigest)
		again.Used = r.Used
		back, err := canonical.Encode(again)
		if err != nil {
			t.Fatal(err)
		}
		r2, err := parseRecord(back)
		if err != nil || fmt.Sprint(r2) != fmt.Sprint(r) && len(r.Models) > 0 {
			t.Errorf("%+v\n%+v, %v", r, r2, err)
		}
		if r.lease().ExpiresAt.IsZero() && r.ExpiresAt != sandbox.At(time.Time{}) {
			t.Error("a time was lost")
		}
	})
}

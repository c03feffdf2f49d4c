package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestReceipt is the matrix on the topology of our machines, whole: all cases in
// each configuration, all faults, and the cases of who holds what during a real Run.
// It is sealed, the receipt stands for who asks by its key and for nobody else, and
// one that was altered for nobody. Without a run that showed all there is none.
func TestReceipt(t *testing.T) {
	// A state of its own: others sweep theirs. Machines pass through it.
	dir, err := os.MkdirTemp(filepath.Dir(state), "receipt-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	checkfu := func(args ...string) *exec.Cmd {
		cmd := exec.Command(binary, args...)
		cmd.Env, cmd.Dir = append(os.Environ(), "CHECKFU_STATE="+filepath.Join(dir, "state")), dir
		return cmd
	}
	expect := func(code int, said string, args ...string) result {
		t.Helper()
		r := finish(t, checkfu(args...))
		if r.code != code || !strings.Contains(r.stdout+r.stderr, said) {
			t.Errorf("checkfu %s: expected %d and %q, got %+v", strings.Join(args, " "), code, said, r)
		}
		return r
	}
	attesters := expect(0, `"name":"e2e"`, "egress", "receipt", "keygen", "key", "--name", "e2e").stdout
	write(t, filepath.Join(dir, "mine.json"), attesters, 0o644)

	matrix := checkfu("egress", "test", "--topology", "socket-file", "--receipt", "receipt.json", "--key", "key", "--json")
	var out, errs bytes.Buffer
	matrix.Stdout, matrix.Stderr = &out, &errs
	if err := matrix.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- matrix.Wait() }()
	t.Cleanup(func() { matrix.Process.Kill() })
	t.Parallel() // it waits more than it works: the others are run meanwhile

	if err := <-done; err != nil || !strings.Contains(errs.String(), "receipt receipt.json: sealed by ") {
		t.Fatalf("%v\n%s\n%.4000s", err, &errs, &out)
	}
	var report struct {
		Verdict string
		Rows    []struct{ ID, Status string }
		Mutants []struct{ Name string }
		Taken   []struct{ Run json.RawMessage }
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || report.Verdict != "conformant" || len(report.Taken) != 1 || len(report.Mutants) != 65 {
		t.Errorf("%v, %s, %d mutants, %+v", err, report.Verdict, len(report.Mutants), report.Taken)
	}
	if want := 211*3 + 11; len(report.Rows) != want {
		t.Errorf("expected %d rows, got %d", want, len(report.Rows))
	}

	expect(6, "whole: 5 facts, 211 cases, 65 mutants", "egress", "receipt", "verify", "receipt.json")
	expect(6, "nobody is listed: no receipt of anybody stands", "egress", "receipt", "verify", "receipt.json")
	expect(0, "valid, signed by e2e", "egress", "receipt", "verify", "receipt.json", "--attesters", "mine.json")
	write(t, filepath.Join(dir, "runsc.json"), mustRun(t, "envelope").stdout, 0o644)
	write(t, filepath.Join(dir, "runc.json"), mustRun(t, "envelope", "--provider", "native:runc").stdout, 0o644)
	expect(0, "certifies nothing here", "egress", "receipt", "verify", "receipt.json", "--attesters", "mine.json", "--envelope", "runsc.json")
	expect(6, "other_revision", "egress", "receipt", "verify", "receipt.json", "--attesters", "mine.json", "--envelope", "runc.json")
	expect(6, "expired", "egress", "receipt", "verify", "receipt.json", "--attesters", "mine.json", "--at", "2099-01-01T00:00:00.000Z")
	expect(6, "future", "egress", "receipt", "verify", "receipt.json", "--attesters", "mine.json", "--at", "2020-01-01T00:00:00.000Z")
	expect(0, "another", "egress", "receipt", "keygen", "another", "--name", "another")
	text, err := os.ReadFile(filepath.Join(dir, "receipt.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"signature": {`"lease_epoch":1`, `"lease_epoch":2`}, "signature ": {`"native-runsc/1"`, `"native-runsc/2"`}, "signature  ": {`"default_deny"`, `"default_denY"`},
	} {
		write(t, filepath.Join(dir, "altered.json"), strings.Replace(string(text), change[0], change[1], 1), 0o644)
		expect(6, "not valid: "+strings.TrimSpace(name), "egress", "receipt", "verify", "altered.json", "--signature", "receipt.json.sig", "--attesters", "mine.json")
	}

	// A run that is cut off has shown some facts, and says which it has not.
	cut := checkfu("egress", "test", "--topology", "socket-file", "--receipt", "cut.json", "--key", "key")
	var said bytes.Buffer
	cut.Stdout, cut.Stderr = &said, &said
	if err := cut.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it makes machines", func() bool {
		found, _ := filepath.Glob(filepath.Join(dir, "state", "*", "instances", "*"))
		return len(found) > 0
	})
	kill(cut, syscall.SIGINT)
	err = cut.Wait()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 3 && exit.ExitCode() != 4 {
		t.Errorf("a run that was cut off: %v", err)
	}
	if text := said.String(); !strings.Contains(text, "checkfu: no receipt: exact_destination_match") || !strings.Contains(text, "not shown: ") {
		t.Errorf("a run that was cut off says\n%.2000s", text)
	}
	left := []string{}
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if name := filepath.Base(path); name == "cut.json" || name == "cut.json.sig" || filepath.Base(filepath.Dir(path)) == "instances" {
			left = append(left, path)
		}
		return err
	})
	if list := expect(0, "REFERENCE", "image", "ls"); len(left) > 0 || strings.Contains(list.stdout, "egress-harness") {
		t.Errorf("left behind: %v, %s", left, list.stdout)
	}
}

// TestEgressAuthority: the cases of who holds what, during a real Run of each
// provider, and a machine whose environment names another address turns one red.
func TestEgressAuthority(t *testing.T) {
	var report struct {
		Rows    []struct{ ID, Status, Reason string }
		Mutants []struct {
			Name   string
			Killed bool
		}
	}
	r := run(t, "egress", "test", "--topology", "socket-file", "--configuration", "guard", "--case", "A", "--json")
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || r.code != 3 { // a part of the matrix is incomplete
		t.Fatalf("%v, %+v", err, r)
	}
	seen := map[string]bool{}
	for _, row := range report.Rows {
		seen[row.ID] = true
		if row.Status != "pass" {
			t.Errorf("%+v", row)
		}
	}
	for _, provider := range []string{"native:runsc", "native:runc"} {
		for _, id := range []string{"A01", "A02", "A06", "A08", "A10", "A11", "A12", "A14", "A15", "A16", "A17"} {
			if !seen[id+"/run/"+provider] {
				t.Errorf("%s was not judged during a Run of %s", id, provider)
			}
		}
	}
	if len(report.Mutants) != 1 || report.Mutants[0].Name != "environment-names-another" || !report.Mutants[0].Killed {
		t.Errorf("%+v", report.Mutants)
	}
}

// Package nine is the nine cases that define a conforming provider.
//
// A case is built of named checks, its halves, so that a provider that cannot
// do one of them sees which it was and that the others hold. Every command and
// every file carries a nonce, and what is asked back is worked out in the
// machine: knowing the questions does not help to answer them.
//
// Trusts: the engine's verdicts. Not trusted: the target, whose every answer
// the engine checks besides.
// Concurrency: a case uses its machines one after the other.
// Source: contract "Conformance".
package nine

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

const source = `contract "Conformance"`

// Probes returns the nine in the contract's order.
func Probes() []probe.Probe {
	row := func(id, clause, title string, run func(*probe.T), requires ...report.Token) probe.Probe {
		return probe.Probe{ID: id, Suite: report.Nine, Clause: clause, Title: title, Source: source, Level: report.Must, Requires: requires, Run: run}
	}
	return []probe.Probe{
		row("stage-seal-execute", "CF-NC-01", "declared mounts stage, read-only data seals, command output is bounded",
			stageSealExecute, report.Filesystem, report.Process),
		row("stage-git-project", "CF-NC-02", "an immutable Git blob stages without a sandbox credential",
			stageGitProject, report.Filesystem, report.Process),
		row("checkpoint-clone", "CF-NC-03", "a clone lands in an independent target-Session snapshot",
			checkpointClone, report.SnapshotToken),
		row("allowlist-egress", "CF-NC-04", "only the declared outbound hosts are reachable",
			allowlistEgress, report.NetworkAllowlist),
		row("durable-round-trip", "CF-NC-05", "files survive snapshot, release and resume",
			durableRoundTrip, report.SnapshotToken),
		row("none-egress", "CF-NC-06", "outbound traffic is denied for a none-network profile",
			noneEgress, report.NetworkNone),
		row("zdr-release", "CF-NC-07", "zero-retention snapshots are forbidden and release destroys all state",
			zdrRelease, report.ZDR),
		row("orphan-reclaim", "CF-NC-08", "expired instances are reclaimed without a database reset",
			orphanReclaim, report.Cleanup),
		row("pause-pinning", "CF-NC-09", "a pause-pinned snapshot survives orphan cleanup until its own expiry",
			pausePinning, report.SnapshotToken, report.Cleanup),
	}
}

// sh runs a script in an instance by its id: resumed ones are not machines of
// the engine.
func sh(t *probe.T, id sandbox.InstanceID, script string) sandbox.Settlement {
	s, err := t.Provider().Execute(t.Context(), id, probe.Command(script))
	t.Need("execute", err)
	return s
}

// writable returns those of dirs that the workload may write to: no document
// promises more than the output tree and the read-write mounts.
func writable(t *probe.T, id sandbox.InstanceID, dirs ...string) []string {
	var all []string
	for _, dir := range dirs {
		if probe.Code(sh(t, id, "test -d "+dir+" && echo > "+dir+"/"+t.Nonce())) == 0 {
			all = append(all, dir)
		} else {
			t.Observe("the workload may not write to %s", dir)
		}
	}
	return all
}

// says is what a command settled with, for a person.
func says(s sandbox.Settlement) string {
	const most = 120
	cut := func(b []byte) string {
		if len(b) > most {
			return hex.EncodeToString(b[:16]) + "… (" + digest(b) + ")"
		}
		return string(b)
	}
	out := "no exit"
	switch {
	case s.TimedOut:
		out = "a timeout"
	case s.Exit.ExitCode != nil:
		out = "exit code " + decimal(*s.Exit.ExitCode)
	case s.Exit.Signal != "":
		out = s.Exit.Signal
	}
	return out + ", stdout " + quoted(cut(s.Stdout)) + ", stderr " + quoted(cut(s.Stderr))
}

// printed reports whether a command ended well and wrote exactly want.
func printed(s sandbox.Settlement, want string) bool {
	return probe.Code(s) == 0 && string(s.Stdout) == want
}

// digest is the SHA-256 of b as sha256sum prints it.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// between is a number that nobody can know, from low to high; the range must
// be under 256 wide.
func between(t *probe.T, low, high int) int { return low + int(t.Bytes(1)[0])%(high-low+1) }

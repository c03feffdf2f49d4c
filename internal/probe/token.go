package probe

import (
	"context"
	"fmt"
	"slices"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/grade"
	"github.com/checkfu/checkfu/sandbox"
)

// Derive gives the tokens that an envelope and the optional members that are
// there amount to. A target cannot add to them.
// Source: contract "Conformance"; docs/divergences.md row 31.
func Derive(c sandbox.Capabilities, o sandbox.Optional) []report.Token {
	c = c.WithDefaults()
	var all []report.Token
	add := func(k report.Token, there bool) {
		if there {
			all = append(all, k)
		}
	}
	add(report.Filesystem, c.MaxMounts > 0)
	add(report.Process, true)
	add(report.SnapshotToken, c.Snapshots)
	add(report.NetworkAllowlist, grade.Network(c, sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist}) == nil)
	add(report.NetworkNone, slices.Contains(c.NetworkModes, sandbox.NetworkNone))
	add(report.ZDR, slices.Contains(c.RetentionModes, sandbox.RetentionEphemeralZDR))
	add(report.Cleanup, true)
	add(report.Mounts, c.MaxMounts > 0)
	add(report.Durable, slices.Contains(c.RetentionModes, sandbox.RetentionDurable))
	add(report.SnapshotClone, c.SnapshotClone)
	add(report.ReadFiles, o.ReadFiles != nil)
	add(report.ListDir, c.ListDir)
	add(report.ListProjectDir, o.ListProjectDir != nil)
	add(report.OpenProcess, o.OpenProcess != nil)
	add(report.ActiveWrite, c.ActiveMountWrite)
	return all
}

// why says which words of the envelope give a token.
var why = map[report.Token]string{
	report.Filesystem:       "max_mounts above 0",
	report.SnapshotToken:    "snapshots: true",
	report.NetworkAllowlist: "network_modes with allowlist, and an egress_certification of advisory_filter or better",
	report.NetworkNone:      "network_modes with none",
	report.ZDR:              "retention_modes with ephemeral_zdr",
	report.Mounts:           "max_mounts above 0",
	report.Durable:          "retention_modes with durable",
	report.SnapshotClone:    "snapshot_clone: true",
	report.ReadFiles:        "the optional member readFiles",
	report.ListDir:          "list_dir: true",
	report.ListProjectDir:   "the optional member listProjectDir",
	report.OpenProcess:      "the optional member openProcess",
	report.ActiveWrite:      "active_mount_write: true",
}

// Applies predicts the status of a probe from tokens, and from how the target is
// reached, alone: "" if it runs.
func Applies(p *Probe, wire *Wire, derived []report.Token, withhold []report.Token) (report.Status, string) {
	if status, reason := overWire(p, wire); status != "" {
		return status, reason
	}
	for _, k := range p.Requires {
		if !slices.Contains(derived, k) {
			return report.Skip, fmt.Sprintf("%s absent: the envelope does not give it (%s)", k, why[k])
		}
	}
	for _, k := range p.Requires {
		if slices.Contains(withhold, k) {
			return report.Withheld, fmt.Sprintf("%s is given by the envelope and withheld by the target", k)
		}
	}
	return "", ""
}

func (r *run) applies(ctx context.Context, p *Probe) (report.Status, string) {
	withhold := r.target.Withhold
	status, reason := Applies(p, r.target.Wire, r.derived, withhold)
	if status != report.Withheld || !slices.Contains(withhold, report.Filesystem) || !slices.Contains(p.Requires, report.Filesystem) || !r.closedRead(ctx) {
		return status, reason
	}
	// The one token that the contract lets a target leave out.
	rest := slices.DeleteFunc(slices.Clone(withhold), func(k report.Token) bool { return k == report.Filesystem })
	if status, reason := Applies(p, r.target.Wire, r.derived, rest); status != "" {
		return status, reason
	}
	return report.Skip, "filesystem omitted: readFile fails closed on physically_contained_file_read"
}

// admit derives the tokens and compares claims with what can be granted.
func (r *run) admit() {
	r.derived = Derive(r.envelope, r.optional)
	t := &r.report.Tokens
	for _, k := range r.derived {
		if slices.Contains(r.target.Withhold, k) {
			t.Withheld = append(t.Withheld, k)
		} else {
			r.declared[k] = true
			t.Declared = append(t.Declared, k)
		}
	}
	t.Derived = r.derived
	r.held(standCeiling)
	// The suite is shown no receipt: what is claimed beyond one is an overclaim.
	_, narrowings, _ := grade.Admit(r.envelope, grade.Standing{Remote: r.target.Remote})
	for _, n := range narrowings {
		r.report.Ceiling = append(r.report.Ceiling, report.Narrowing{Path: n.Field, Claimed: n.Claimed, Admitted: n.Result})
		r.brokeAs(report.Overclaim, standCeiling, n.Field, n.Field, n.Result+" at most", n.Claimed)
	}
	r.held(standMembers)
	member := func(field string, claimed, there bool) {
		if claimed && !there {
			r.brokeAs(report.Overclaim, standMembers, field, field, "the member that the envelope claims", "no such member")
		}
	}
	member("list_dir", r.envelope.ListDir, r.optional.ListDir != nil)
	member("active_mount_write", r.envelope.ActiveMountWrite, r.optional.ActiveWrite != nil)
}

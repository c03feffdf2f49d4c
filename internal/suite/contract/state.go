package contract

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// states holds every member to the states in which it may be called. Where the
// Runner refuses a call before it comes to the provider, the provider only
// should refuse it too: a second Runner, or one with a defect, would find out.
func states() []probe.Probe {
	const lifecycle = `contract "Lifecycle and states"`
	const operations = `contract "The operations"`
	const paths = `contract "Paths, mounts, and what the Runner admits first"`
	return []probe.Probe{
		{
			ID: "states.provisioning-refuses", Suite: report.Contract, Clause: "CF-CS-01", Level: report.Should, Source: lifecycle,
			Title: "what needs an active instance is refused while it is provisioning", Run: provisioningRefuses,
		},
		{
			ID: "states.activate-once", Suite: report.Contract, Clause: "CF-CS-02", Level: report.Should, Source: lifecycle,
			Title: "an active instance is not activated again", Run: activateOnce,
		},
		{
			ID: "states.unknown-instance", Suite: report.Contract, Clause: "CF-CS-03", Source: `contract "Errors"`,
			Title: "an id that names no instance is SandboxInstanceNotFound", Run: unknownInstance,
		},
		{
			ID: "states.destroyed-is-gone", Suite: report.Contract, Clause: "CF-CS-04", Source: operations,
			Title: "nothing works on a destroyed instance", Run: destroyedInstance,
		},
		{
			ID: "states.released-is-gone", Suite: report.Contract, Clause: "CF-CS-05", Source: lifecycle,
			Title: "nothing works on a released instance, and nothing of it can be read", Run: releasedInstance,
		},
		{
			ID: "states.zdr-never-captured", Suite: report.Contract, Clause: "CF-CS-06", Source: `contract "Conformance"`,
			Title:    "an instance of zero retention is never captured",
			Requires: []report.Token{report.ZDR}, Run: zdrNeverCaptured,
		},
		{
			ID: "states.write-scope", Suite: report.Contract, Clause: "CF-CS-07", Level: report.Should, Source: paths,
			Title:    "once active, only the output tree can be written from outside",
			Requires: []report.Token{report.Mounts}, Run: writeScope,
		},
		{
			ID: "states.sealed-mounts", Suite: report.Contract, Clause: "CF-CS-08", Source: operations,
			Title:    "activation seals read-only mounts against the workload",
			Requires: []report.Token{report.Mounts}, Run: sealedMounts,
		},
		{
			ID: "states.fresh-machine", Suite: report.Contract, Clause: "CF-CS-09", Source: operations,
			Title: "a new instance holds nothing of one that was there before", Run: freshMachine,
		},
		{
			ID: "states.past-deadline", Suite: report.Contract, Clause: "CF-CS-10", Level: report.Should, Source: `contract "openProcess"`,
			Title: "an instance does no work past its expires_at", Once: true, Run: pastDeadline,
		},
	}
}

// call is one member that works on one instance.
type call struct {
	op sandbox.Operation
	do func() error
}

// calls are the members that work on an instance and that the target has,
// release last. root is a read-write mount of it, or "".
func calls(t *probe.T, id sandbox.InstanceID, retention sandbox.RetentionMode, root string) []call {
	ctx, p, o := t.Context(), t.Provider(), t.Optional()
	path := sandbox.OutputPath + "/" + t.Nonce()
	all := []call{
		{sandbox.OpExecute, func() error { _, err := p.Execute(ctx, id, probe.Command("exit 0")); return err }},
		{sandbox.OpReadFile, func() error {
			_, err := p.ReadFile(ctx, id, sandbox.FileRead{Path: path, AllowedRoot: sandbox.OutputPath, MaximumBytes: 1})
			return err
		}},
	}
	add := func(there bool, op sandbox.Operation, do func() error) {
		if there {
			all = append(all, call{op, do})
		}
	}
	listing := sandbox.Listing{Root: sandbox.OutputPath, MaxEntries: 1}
	add(o.ReadFiles != nil, sandbox.OpReadFiles, func() error {
		_, err := o.ReadFiles.ReadFiles(ctx, id, sandbox.FilesRead{AllowedRoot: sandbox.OutputPath, Files: []sandbox.FileMember{{Path: path, MaximumBytes: 1}}, AggregateMaximumBytes: 1})
		return err
	})
	add(o.ListDir != nil, sandbox.OpListDir, func() error { _, err := o.ListDir.ListDir(ctx, id, listing); return err })
	add(o.ListProjectDir != nil, sandbox.OpListProjectDir, func() error { _, err := o.ListProjectDir.ListProjectDir(ctx, id, listing); return err })
	add(o.OpenProcess != nil, sandbox.OpOpenProcess, func() error {
		c := probe.Command("exit 0")
		process, err := o.OpenProcess.OpenProcess(ctx, id, "pr_"+t.Nonce()+t.Nonce(), sandbox.ProcessRequest{
			Executable: c.Executable, Arguments: c.Arguments, WorkingDirectory: c.WorkingDirectory, Environment: c.Environment,
		})
		if err == nil {
			t.Defer(func() { _ = process.Destroy(ctx) })
		}
		return err
	})
	add(o.ActiveWrite != nil && root != "", sandbox.OpBeginActiveWrite, func() error {
		w, err := o.ActiveWrite.BeginActiveWrite(ctx, id, []string{root + "/" + t.Nonce()})
		if err == nil {
			t.Defer(func() { _ = w.Abort(ctx) })
		}
		return err
	})
	release := sandbox.ReleaseRequest{}
	if retention == sandbox.RetentionDurable {
		release.ExpiresAt = later(t)
		add(t.Has(report.SnapshotToken), sandbox.OpSnapshot, func() error {
			_, err := p.Snapshot(ctx, id, sandbox.SnapshotRequest{ExpiresAt: later(t)})
			return err
		})
	}
	add(true, sandbox.OpRelease, func() error { _, err := p.Release(ctx, id, release); return err })
	return all
}

// ran is the live control of refusals: what is refused elsewhere works here.
func ran(t *probe.T, m *probe.Machine) {
	t.Control("ran", probe.Code(m.Sh("exit 0")) == 0, "the machine does not run")
}

// refuses wants each call refused as kind. A provider that never reads may say
// so instead.
func refuses(t *probe.T, kind sandbox.Kind, all []call) {
	for _, c := range all {
		err := c.do()
		if errors.Is(err, sandbox.Unavailable("", sandbox.RequireContainedRead, "", "")) {
			continue
		}
		t.Refused(string(c.op), err, &sandbox.Error{Kind: kind, Operation: c.op})
	}
}

// broad is a shape that most members can work on, and its read-write mount.
func broad(t *probe.T) (probe.Shape, string) {
	var s probe.Shape
	root := ""
	if t.Has(report.Mounts) {
		s.Mounts = plan(t, 1, sandbox.AccessReadWrite)
		root = s.Mounts[0].MountPath
	}
	if t.Has(report.Durable) {
		s = probe.Durable(s)
	}
	return s, root
}

func provisioningRefuses(t *probe.T) {
	s, root := broad(t)
	ran(t, t.Machine(s))
	m := t.Provision(s)
	refuses(t, sandbox.LifecycleConflict, calls(t, m.ID, m.Request.Profile.RetentionMode, root))
}

func activateOnce(t *probe.T) {
	m := t.Machine(probe.Shape{})
	_, err := t.Provider().Activate(t.Context(), m.ID)
	t.Refused("activate", err, &sandbox.Error{Kind: sandbox.LifecycleConflict, Operation: sandbox.OpActivate})
}

// lost are the calls that come to an instance that is not there.
func lost(t *probe.T, id sandbox.InstanceID, retention sandbox.RetentionMode, root string) []call {
	ctx, p := t.Context(), t.Provider()
	return append([]call{
		{sandbox.OpWriteFile, func() error {
			return p.WriteFile(ctx, id, sandbox.FileWrite{Path: sandbox.OutputPath + "/" + t.Nonce(), Content: []byte("x")})
		}},
		{sandbox.OpActivate, func() error { _, err := p.Activate(ctx, id); return err }},
	}, calls(t, id, retention, root)...)
}

func unknownInstance(t *probe.T) {
	s, root := broad(t)
	m := t.Machine(s)
	ran(t, m)
	// Of the length that this target's ids have, so that it is not the form
	// that is refused.
	for _, other := range []sandbox.InstanceID{sandbox.InstanceID(t.ID("ins_")), otherID(t, m.ID)} {
		refuses(t, sandbox.InstanceNotFound, lost(t, other, m.Request.Profile.RetentionMode, root))
	}
}

// otherID has the form of id and names nothing: every hex digit is another.
func otherID(t *probe.T, id sandbox.InstanceID) sandbox.InstanceID {
	other := []byte(id)
	digits := t.Nonce()
	for i, c := range other {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'f' {
			other[i] = digits[i%len(digits)]
		}
	}
	if sandbox.InstanceID(other) == id {
		return sandbox.InstanceID(t.ID("ins_"))
	}
	return sandbox.InstanceID(other)
}

func destroyedInstance(t *probe.T) {
	s, root := broad(t)
	m := t.Machine(s)
	ran(t, m)
	t.Need("destroy", t.Provider().Destroy(t.Context(), m.ID))
	refuses(t, sandbox.InstanceNotFound, lost(t, m.ID, m.Request.Profile.RetentionMode, root))
}

func releasedInstance(t *probe.T) {
	for _, retention := range t.Envelope().RetentionModes {
		s, root := broad(t)
		s.Retention = retention
		m := t.Machine(s)
		path := sandbox.OutputPath + "/" + t.Nonce()
		t.Need("write", t.Provider().WriteFile(t.Context(), m.ID, sandbox.FileWrite{Path: path, Content: t.Bytes(16)}))
		ran(t, m)
		_, readable := m.Read(path, sandbox.OutputPath, 16)
		q := sandbox.ReleaseRequest{}
		if retention == sandbox.RetentionDurable {
			q.ExpiresAt = later(t)
		}
		_, err := t.Provider().Release(t.Context(), m.ID, q)
		t.Need("release", err)
		if readable == nil {
			_, err = m.Read(path, sandbox.OutputPath, 16)
			t.Check("contents", err != nil, "none of its files", "one of them")
		}
		refuses(t, sandbox.InstanceNotFound, lost(t, m.ID, retention, root))
	}
}

func zdrNeverCaptured(t *probe.T) {
	if t.Has(report.SnapshotToken) && t.Has(report.Durable) {
		durable := t.Machine(probe.Durable(probe.Shape{}))
		_, err := t.Provider().Snapshot(t.Context(), durable.ID, sandbox.SnapshotRequest{ExpiresAt: later(t)})
		t.Control("durable", err == nil, err)
	}
	m := t.Machine(probe.Shape{Retention: sandbox.RetentionEphemeralZDR})
	_, err := t.Provider().Snapshot(t.Context(), m.ID, sandbox.SnapshotRequest{ExpiresAt: later(t)})
	if !t.Has(report.SnapshotToken) && errors.Is(err, sandbox.Unavailable("", sandbox.RequireSnapshots, "", "")) {
		t.Check("snapshot", true, "", nil) // it captures nothing at all
		return
	}
	t.Refused("snapshot", err, &sandbox.Error{Kind: sandbox.SnapshotForbidden, Operation: sandbox.OpSnapshot})
}

func writeScope(t *probe.T) {
	mounts := plan(t, 1, sandbox.AccessReadWrite)
	m := t.Machine(probe.Shape{Mounts: mounts})
	write := func(root string) error {
		return t.Provider().WriteFile(t.Context(), m.ID, sandbox.FileWrite{Path: root + "/" + t.Nonce(), Content: []byte("x")})
	}
	t.Need("output", write(sandbox.OutputPath))
	err := write(mounts[0].MountPath)
	t.Check("mount", err != nil, "a refusal", "success")
}

// changes tries every way to change a directory that holds the file "name",
// and prints those that worked.
const changes = `cd %[1]s || exit 3
printf x > name && echo overwrite
printf x >> name && echo append
printf x > made && echo create
mkdir dir && echo mkdir
ln -s name link && echo link
chmod 755 name && echo chmod
mv name moved && echo rename
rm moved && echo remove
rm name && echo remove
exit 0`

func sealedMounts(t *probe.T) {
	mounts := plan(t, 2, sandbox.AccessReadWrite, sandbox.AccessReadOnly)
	if len(mounts) < 2 {
		t.NotHere("one mount is all that is offered: nothing to compare with")
	}
	content := t.Nonce()
	s := probe.Shape{Mounts: mounts}
	for _, m := range mounts {
		s.Files = append(s.Files, sandbox.FileWrite{Path: m.MountPath + "/name", Content: []byte(content)})
	}
	m := t.Machine(s)
	open := m.Sh(fmt.Sprintf(changes, mounts[0].MountPath))
	took := strings.Fields(string(open.Stdout))
	t.Control("read-write", slices.Contains(took, "overwrite") && slices.Contains(took, "create"), "a read-write mount took only: "+strings.Join(took, " "))
	sealed := m.Sh(fmt.Sprintf(changes, mounts[1].MountPath))
	t.Check("unchangeable", string(sealed.Stdout) == "" && probe.Code(sealed) == 0, "no way to change it", sealed.Stdout)
	still := m.Sh("cat " + mounts[1].MountPath + "/name")
	t.Check("unchanged", string(still.Stdout) == content, content, still.Stdout)
}

func freshMachine(t *probe.T) {
	name := t.Nonce()
	roots := []string{"/tmp", sandbox.HomePath, sandbox.OutputPath}
	var s probe.Shape
	if t.Has(report.Mounts) {
		s.Mounts = plan(t, 1, sandbox.AccessReadWrite)
		roots = append(roots, s.Mounts[0].MountPath)
	}
	leave, look := "", ""
	for _, root := range roots {
		leave += "printf x > " + root + "/" + name + "\n"
		look += "test -e " + root + "/" + name + " && echo " + root + "\n"
	}
	// The same look finds the files in the machine that has them.
	old := t.Machine(s)
	left := old.Sh(leave + look + "exit 0")
	t.Control("left", len(left.Stdout) > 0, "no file could be left anywhere")
	t.Need("destroy", t.Provider().Destroy(t.Context(), old.ID))
	s.Session = t.ID("ses_")
	found := t.Machine(s).Sh(look + "exit 0")
	t.Check("empty", len(found.Stdout) == 0 && probe.Code(found) == 0, "nothing of the machine before", found.Stdout)
}

func pastDeadline(t *probe.T) {
	// A clock that only runs is waited for: long enough for a machine to start.
	lifetime := time.Hour
	if _, moves := t.Target().Clock.(interface{ Advance(time.Duration) }); !moves {
		if lifetime = brief(t, func() { t.Machine(probe.Shape{}) }); lifetime > 30*time.Second {
			t.NotHere("a machine takes too long to start for one to be started and waited for")
		}
	}
	m := t.Machine(probe.Shape{Lifetime: lifetime})
	ran(t, m)
	t.Until(m.Request.ExpiresAt)
	_, err := t.Provider().Execute(t.Context(), m.ID, probe.Command("exit 0"))
	t.Check("execute", err != nil, "a refusal", "success")
}

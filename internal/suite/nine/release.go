package nine

import (
	"errors"
	"strings"
	"time"

	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// zdrRelease fills a machine of zero retention, is refused its capture,
// releases it, and looks for what is left: through every member, in the
// census, and in the next machine.
func zdrRelease(t *probe.T) {
	shape := probe.Shape{Retention: sandbox.RetentionEphemeralZDR}
	places := []string{sandbox.OutputPath}
	if t.Envelope().MaxMounts > 0 {
		work := "/workspace/" + t.Nonce()
		shape.Mounts = []sandbox.Mount{{MountPath: work, Access: sandbox.AccessReadWrite, Kind: sandbox.MountProject}}
		places = append(places, work)
	}
	m := t.Machine(shape)
	places = append(places, writable(t, m.ID, sandbox.HomePath, "/tmp")...)
	name := t.Nonce()
	for _, dir := range places {
		fill(t, "written", m.ID, dir+"/"+name)
	}
	_, err := t.Provider().Snapshot(t.Context(), m.ID, sandbox.SnapshotRequest{ExpiresAt: sandbox.At(t.Now().Add(time.Hour))})
	forbidden := &sandbox.Error{Kind: sandbox.SnapshotForbidden, Operation: sandbox.OpSnapshot}
	// Who cannot capture anything may say that instead.
	if !t.Envelope().Snapshots && errors.Is(err, &sandbox.Error{Kind: sandbox.CapabilityUnavailable, Requirement: sandbox.RequireSnapshots}) {
		t.Check("snapshot-forbidden", true, "", nil)
	} else {
		t.Refused("snapshot-forbidden", err, forbidden)
	}
	_, err = t.Provider().Release(t.Context(), m.ID, sandbox.ReleaseRequest{})
	t.Need("release", err)
	gone(t, "gone", m.ID)
	uncounted(t, "census", string(m.ID))
	// The next tenant must not find anything, however the machine was made.
	next := t.Machine(shape)
	fill(t, "written", next.ID, sandbox.OutputPath+"/"+t.Nonce())
	for _, dir := range places {
		got := next.Sh("test -e " + dir + "/" + name)
		t.Check("no-trace", probe.Code(got) == 1, "no file of the released instance in "+dir, says(got))
	}
}

// gone asks every member for an instance that is no more.
func gone(t *probe.T, check string, id sandbox.InstanceID) {
	ctx, p, o := t.Context(), t.Provider(), t.Optional()
	file := sandbox.OutputPath + "/" + t.Nonce()
	absent := func(op sandbox.Operation, err error) {
		t.Refused(check, err, &sandbox.Error{Kind: sandbox.InstanceNotFound, Operation: op})
	}
	// A member that the provider never serves may say so before it looks.
	unless := func(op sandbox.Operation, unserved sandbox.Requirement, err error) {
		if !errors.Is(err, &sandbox.Error{Kind: sandbox.CapabilityUnavailable, Operation: op, Requirement: unserved}) {
			absent(op, err)
		}
	}
	absent(sandbox.OpWriteFile, p.WriteFile(ctx, id, sandbox.FileWrite{Path: file, Content: t.Bytes(8)}))
	_, err := p.Activate(ctx, id)
	absent(sandbox.OpActivate, err)
	_, err = p.Execute(ctx, id, probe.Command("echo "+t.Nonce()))
	absent(sandbox.OpExecute, err)
	_, err = p.ReadFile(ctx, id, sandbox.FileRead{Path: file, AllowedRoot: sandbox.OutputPath, MaximumBytes: 1})
	unless(sandbox.OpReadFile, sandbox.RequireContainedRead, err)
	_, err = p.Release(ctx, id, sandbox.ReleaseRequest{})
	absent(sandbox.OpRelease, err)
	if t.Envelope().Snapshots {
		_, err = p.Snapshot(ctx, id, sandbox.SnapshotRequest{ExpiresAt: sandbox.At(t.Now().Add(time.Hour))})
		absent(sandbox.OpSnapshot, err)
	}
	if o.ReadFiles != nil {
		_, err = o.ReadFiles.ReadFiles(ctx, id, sandbox.FilesRead{AllowedRoot: sandbox.OutputPath, AggregateMaximumBytes: 1,
			Files: []sandbox.FileMember{{Path: file, MaximumBytes: 1}}})
		unless(sandbox.OpReadFiles, sandbox.RequireContainedRead, err)
	}
	listing := sandbox.Listing{Root: sandbox.OutputPath, MaxEntries: 10}
	if o.ListDir != nil {
		_, err = o.ListDir.ListDir(ctx, id, listing)
		absent(sandbox.OpListDir, err)
	}
	if o.ListProjectDir != nil {
		_, err = o.ListProjectDir.ListProjectDir(ctx, id, listing)
		absent(sandbox.OpListProjectDir, err)
	}
	if o.OpenProcess != nil {
		_, err = o.OpenProcess.OpenProcess(ctx, id, "pr_"+t.Nonce()+t.Nonce(), sandbox.ProcessRequest{Executable: "/bin/sh", Arguments: []string{"-c", "exit 0"}, WorkingDirectory: "/"})
		absent(sandbox.OpOpenProcess, err)
	}
	if o.ActiveWrite != nil {
		_, err = o.ActiveWrite.BeginActiveWrite(ctx, id, []string{"/workspace/" + t.Nonce() + "/" + t.Nonce()})
		unless(sandbox.OpBeginActiveWrite, sandbox.RequireActiveMountWrite, err)
	}
}

// uncounted holds that the census, where there is one, does not name an id.
func uncounted(t *probe.T, check, id string) {
	census := t.Target().Census
	if census == nil {
		return
	}
	list, err := census(t.Context())
	t.Control("census", err == nil, err)
	t.Check(check, !strings.Contains(strings.Join(list, "\n"), id), "nothing of "+id, "it is still there")
}

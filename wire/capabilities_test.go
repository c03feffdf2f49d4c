package wire

import (
	"errors"
	"slices"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
)

type everything struct {
	sandbox.FilesReader
	sandbox.ProjectLister
	sandbox.ProcessOpener
}

func TestCapabilities_MembersAgreeWithTheEnvelope(t *testing.T) {
	all := sandbox.Operations()
	full := func(c *sandbox.Capabilities) {
		c.ListDir, c.Snapshots, c.SnapshotClone, c.ActiveMountWrite = true, true, true, true
	}
	without := func(from []sandbox.Operation, gone ...sandbox.Operation) []sandbox.Operation {
		return slices.DeleteFunc(slices.Clone(from), func(op sandbox.Operation) bool { return slices.Contains(gone, op) })
	}
	live := Limits{MaxWaitMS: 1, OutputWindowBytes: DefaultOutputWindowBytes, InputBufferBytes: DefaultInputBufferBytes}
	for name, c := range map[string]struct {
		envelope func(*sandbox.Capabilities)
		wire     Info
		ok       bool
	}{
		"minimum":                       {nil, answer.Wire, true},
		"all":                           {full, Info{Revision, all, live, true}, true},
		"all, claimed by nobody":        {nil, Info{Revision, all, live, true}, false},
		"list_dir claimed":              {func(c *sandbox.Capabilities) { c.ListDir = true }, answer.Wire, false},
		"list_dir served":               {nil, Info{Revision, append(slices.Clone(minimum), "list_dir"), answer.Wire.Limits, false}, false},
		"snapshots without resume":      {full, Info{Revision, without(all, "resume"), live, true}, false},
		"snapshots without snapshot":    {full, Info{Revision, without(all, "snapshot"), live, true}, false},
		"clone claimed":                 {full, Info{Revision, without(all, "clone_snapshot"), live, true}, false},
		"active write claimed":          {full, Info{Revision, without(all, "begin_active_write"), live, true}, false},
		"no execute":                    {full, Info{Revision, without(all, "execute"), live, true}, false},
		"no batch, listing and process": {full, Info{Revision, without(all, "read_files", "list_project_dir", "open_process"), Limits{MaxWaitMS: 1}, true}, true},
		"a member twice":                {nil, Info{Revision, append(slices.Clone(minimum), "execute"), answer.Wire.Limits, false}, false},
		"a helper as a member":          {nil, Info{Revision, append(slices.Clone(minimum), "rollback"), answer.Wire.Limits, false}, false},
		"another revision":              {nil, Info{"v2", minimum, answer.Wire.Limits, false}, false},
		"no wait":                       {nil, Info{Revision, minimum, Limits{}, false}, false},
		"too long a wait":               {nil, Info{Revision, minimum, Limits{MaxWaitMS: MaxWaitMS + 1}, false}, false},
		"process limits for nobody":     {nil, Info{Revision, minimum, live, false}, false},
		"no process limits":             {full, Info{Revision, all, Limits{MaxWaitMS: 1}, true}, false},
		"a small window":                {full, Info{Revision, all, Limits{1, MinOutputWindowBytes - 1, DefaultInputBufferBytes}, true}, false},
		"a large input buffer":          {full, Info{Revision, all, Limits{1, DefaultOutputWindowBytes, MaxInputBufferBytes + 1}, true}, false},
	} {
		r := CapabilitiesResponse{envelope, c.wire}
		if c.envelope != nil {
			c.envelope(&r.Capabilities)
		}
		if _, err := Encode(r); (err == nil) != c.ok || err != nil && !errors.Is(err, &Error{Tag: TagMalformed}) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMembers_OfAProvider(t *testing.T) {
	if got := Members(envelope, sandbox.Optional{}); !slices.Equal(got, minimum) {
		t.Error(got)
	}
	c := envelope
	c.ListDir, c.Snapshots, c.SnapshotClone, c.ActiveMountWrite = true, true, true, true
	e := everything{}
	if got := Members(c, sandbox.Optional{ReadFiles: e, ListProjectDir: e, OpenProcess: e}); !slices.Equal(got, sandbox.Operations()) {
		t.Error(got)
	}
}

func TestCapabilitiesDigest_SeesEveryClaim(t *testing.T) {
	a, err := CapabilitiesDigest(envelope)
	if err != nil || !a.Valid() {
		t.Fatal(a, err)
	}
	c := envelope
	c.ListDir = true
	if b, err := CapabilitiesDigest(c); err != nil || a == b {
		t.Error(a, b, err)
	}
	c = envelope
	c.Provider = "\xff"
	if _, err := CapabilitiesDigest(c); err == nil {
		t.Error("an envelope without a canonical form has a digest")
	}
}

package wire

import (
	"slices"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
)

func TestEndpoints_AreTheMembersAndTheHelpers(t *testing.T) {
	all := Endpoints()
	if len(all) != 29 {
		t.Fatalf("%d endpoints", len(all))
	}
	for i, op := range sandbox.Operations() {
		if traits, _ := all[i].Traits(); string(all[i]) != string(op) || traits.Member != op {
			t.Errorf("%s stands where %s does", all[i], op)
		}
	}
	for _, e := range all {
		if back, ok := ParsePath(e.Path()); !ok || back != e {
			t.Errorf("%s: %s", e, back)
		}
		traits, _ := e.Traits()
		if traits.Handoff && !traits.Mutating {
			t.Errorf("%s allocates without an id", e)
		}
		if (traits.ResponseBytes == 0) != (e == ProcessStream) || traits.RequestBytes == 0 {
			t.Errorf("%s has no bound", e)
		}
	}
	var framed, handoffs []Endpoint
	for _, e := range all {
		traits, _ := e.Traits()
		if traits.FramedRequest {
			framed = append(framed, e)
		}
		if traits.Handoff {
			handoffs = append(handoffs, e)
		}
	}
	if !slices.Equal(framed, []Endpoint{WriteFile, Execute, StageActiveWrite, ProcessInput}) {
		t.Error(framed)
	}
	if !slices.Equal(handoffs, []Endpoint{Provision, Activate, Snapshot, CloneSnapshot, Release, Resume}) {
		t.Error(handoffs)
	}
	for _, path := range []string{"", "/", "/v1/", "/v1/provision/", "/v1//provision", "/V1/provision", "/v1/Provision", "/v1/provision?x", "/v1/%70rovision", "provision", "/v2/provision", "/v1/readFile"} {
		if e, ok := ParsePath(path); ok {
			t.Errorf("%q is %s", path, e)
		}
	}
}

func TestFramedRequests_HoldTheLargestContent(t *testing.T) {
	for call, data := range map[Message]int{
		FileCall{"i", "/a", sandbox.MaxFileBytes + 1, zero, false, ""}: sandbox.MaxFileBytes + 1,
		InputCall{"i", prID, 0, true}:                                  MaxInputBytes,
	} {
		body, err := NewBody(call, make([]byte, data))
		if err != nil {
			t.Fatal(err)
		}
		limit := int64(MaxFramedRequestBytes)
		if _, ok := call.(InputCall); ok {
			limit = MaxInputRequestBytes
		}
		if body.Size() > limit {
			t.Errorf("%T: %d bytes", call, body.Size())
		}
	}
	if _, err := NewBody(InputCall{"i", prID, 0, true}, make([]byte, MaxFramedRequestBytes)); err == nil {
		t.Error("a body over every bound")
	}
	if _, err := NewBody(Settled{}, nil); err == nil {
		t.Error("an invalid call")
	}
}

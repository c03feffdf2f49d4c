package wire

import (
	"errors"
	"maps"
	"net/textproto"
	"strings"
	"testing"
	"time"
)

var token = strings.Repeat("a", 31) + "="

func good() RequestHeader {
	return RequestHeader{Token: token, Lease: Lease{"lease:1", 7}, Operation: opID, Deadline: 1500 * time.Millisecond, Wait: 20 * time.Second}
}

func TestRequestHeader_RoundTripsOnEveryEndpoint(t *testing.T) {
	for _, e := range Endpoints() {
		traits, _ := e.Traits()
		want := good()
		if !traits.Lease {
			want.Lease = Lease{}
		}
		if !traits.Mutating {
			want.Operation = ""
		}
		header := map[string][]string{}
		good().Set(header, e)
		for name := range header {
			if name != textproto.CanonicalMIMEHeaderKey(name) {
				t.Errorf("%s is not in the form that net/http keeps", name)
			}
		}
		if got, err := ParseRequestHeader(header, e); err != nil || got != want {
			t.Errorf("%s: %+v, %v", e, got, err)
		}
	}
}

func TestRequestHeader_Edges(t *testing.T) {
	for name, c := range map[string]struct {
		h, want RequestHeader
	}{
		"no token":          {RequestHeader{Lease: Lease{"l", 0}, Operation: opID}, RequestHeader{Lease: Lease{"l", 0}, Operation: opID}},
		"a sliver of time":  {RequestHeader{Lease: Lease{"l", 0}, Operation: opID, Deadline: 1}, RequestHeader{Lease: Lease{"l", 0}, Operation: opID, Deadline: time.Millisecond}},
		"more than a week":  {RequestHeader{Lease: Lease{"l", 0}, Operation: opID, Deadline: 1 << 62}, RequestHeader{Lease: Lease{"l", 0}, Operation: opID, Deadline: MaxDeadline}},
		"the highest epoch": {RequestHeader{Lease: Lease{"l", maxOffset}, Operation: opID}, RequestHeader{Lease: Lease{"l", maxOffset}, Operation: opID}},
	} {
		header := map[string][]string{}
		c.h.Set(header, Provision)
		if got, err := ParseRequestHeader(header, Provision); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	header := map[string][]string{}
	good().Set(header, Provision)
	delete(header, HeaderWait)
	delete(header, HeaderDeadline)
	if got, err := ParseRequestHeader(header, Provision); err != nil || got.Wait != DefaultWaitMS*time.Millisecond || got.Deadline != 0 {
		t.Errorf("without times: %+v, %v", got, err)
	}
}

func TestRequestHeader_RefusesOtherForms(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []string
		tag    Tag
	}{
		{HeaderWire, nil, TagUnsupported},
		{HeaderWire, []string{"checkfu.sandbox-wire.v2"}, TagUnsupported},
		{HeaderWire, []string{Revision + " "}, TagUnsupported},
		{HeaderWire, []string{Revision, Revision}, TagUnsupported},
		{HeaderAuthorization, []string{"bearer " + token}, TagUnauthenticated},
		{HeaderAuthorization, []string{"Bearer  " + token}, TagUnauthenticated},
		{HeaderAuthorization, []string{"Bearer " + token[1:]}, TagUnauthenticated},
		{HeaderAuthorization, []string{"Bearer " + strings.Repeat("a", 513)}, TagUnauthenticated},
		{HeaderAuthorization, []string{"Bearer " + token + "!"}, TagUnauthenticated},
		{HeaderAuthorization, []string{"Bearer " + token, "Bearer " + token}, TagUnauthenticated},
		{HeaderAuthorization, []string{""}, TagUnauthenticated},
		{HeaderLeaseID, nil, TagMalformed},
		{HeaderLeaseID, []string{""}, TagMalformed},
		{HeaderLeaseID, []string{"a b"}, TagMalformed},
		{HeaderLeaseID, []string{"é"}, TagMalformed},
		{HeaderLeaseID, []string{strings.Repeat("a", 256)}, TagMalformed},
		{HeaderLeaseID, []string{strings.Repeat("a", 1025)}, TagMalformed},
		{HeaderLeaseID, []string{"a", "a"}, TagMalformed},
		{HeaderLeaseEpoch, nil, TagMalformed},
		{HeaderLeaseEpoch, []string{""}, TagMalformed},
		{HeaderLeaseEpoch, []string{"-1"}, TagMalformed},
		{HeaderLeaseEpoch, []string{"+1"}, TagMalformed},
		{HeaderLeaseEpoch, []string{"01"}, TagMalformed},
		{HeaderLeaseEpoch, []string{"1.0"}, TagMalformed},
		{HeaderLeaseEpoch, []string{" 1"}, TagMalformed},
		{HeaderLeaseEpoch, []string{"１"}, TagMalformed},
		{HeaderLeaseEpoch, []string{"9007199254740992"}, TagMalformed},
		{HeaderLeaseEpoch, []string{"18446744073709551617"}, TagMalformed},
		{HeaderOperationID, nil, TagMalformed},
		{HeaderOperationID, []string{"op_0000000000000000000000000000000A"}, TagMalformed},
		{HeaderOperationID, []string{string(prID)}, TagMalformed},
		{HeaderOperationID, []string{string(opID) + "0"}, TagMalformed},
		{HeaderDeadline, []string{"0"}, TagMalformed},
		{HeaderDeadline, []string{"604800001"}, TagMalformed},
		{HeaderWait, []string{"30001"}, TagMalformed},
		{HeaderWait, []string{""}, TagMalformed},
	} {
		header := map[string][]string{}
		good().Set(header, Provision)
		header[c.name] = c.values
		if c.values == nil {
			delete(header, c.name)
		}
		h, err := ParseRequestHeader(header, Provision)
		var e *Error
		if !errors.As(err, &e) || e.Tag != c.tag || h != (RequestHeader{}) {
			t.Errorf("%s %q: %+v, %v", c.name, c.values, h, err)
		}
		if e != nil && e.Tag == TagMalformed && !strings.EqualFold(e.Pointer, c.name) {
			t.Errorf("%s %q: names %s", c.name, c.values, e.Pointer)
		}
		if err != nil && strings.Contains(err.Error(), token[1:]) {
			t.Errorf("%s: the error repeats the token", c.name)
		}
	}
	for name, e := range map[string]Endpoint{HeaderLeaseID: Capabilities, HeaderLeaseEpoch: Capabilities, HeaderOperationID: ReadFile} {
		header := map[string][]string{}
		good().Set(header, e)
		full := map[string][]string{}
		good().Set(full, Provision)
		header[name] = full[name]
		if _, err := ParseRequestHeader(header, e); !errors.Is(err, &Error{Tag: TagMalformed}) {
			t.Errorf("%s on %s: %v", name, e, err)
		}
	}
	if _, err := ParseRequestHeader(nil, "x"); !errors.Is(err, &Error{Tag: TagMemberUnknown}) {
		t.Error(err)
	}
}

func TestResponseHeader(t *testing.T) {
	for _, framed := range []bool{false, true} {
		header := map[string][]string{}
		want := ResponseHeader{zero, btID}
		want.Set(header, framed)
		if got, err := ParseResponseHeader(header); err != nil || got != want {
			t.Errorf("%+v, %v", got, err)
		}
		media := map[bool]string{true: MediaFrames, false: MediaJSON}
		if err := CheckMedia(header, media[framed]); err != nil {
			t.Error(err)
		}
		if err := CheckMedia(header, media[!framed]); err == nil {
			t.Error("the other media type was taken")
		}
		if (len(header["X-Accel-Buffering"]) == 1) != framed {
			t.Error("the request to intermediaries belongs to framed responses")
		}
		for name, value := range map[string]string{HeaderWire: "x", HeaderBoot: string(opID), HeaderCapabilities: "sha256:", "Content-Encoding": "gzip", "Content-Type": media[framed] + "; charset=utf-8"} {
			own := maps.Clone(header)
			own[name] = []string{value}
			_, err := ParseResponseHeader(own)
			if err == nil {
				err = CheckMedia(own, media[framed])
			}
			if err == nil {
				t.Errorf("%s: %q was taken", name, value)
			}
		}
	}
}

func TestTokens(t *testing.T) {
	first, second := strings.Repeat("a", 32), strings.Repeat("b", 512)
	tokens, err := NewTokens(first, second)
	if err != nil {
		t.Fatal(err)
	}
	for candidate, want := range map[string]bool{first: true, second: true, "": false, first + "a": false, first[1:]: false, strings.Repeat("c", 32): false} {
		if tokens.Accept(candidate) != want {
			t.Errorf("%d characters: not %v", len(candidate), want)
		}
	}
	if (Tokens{}).Accept("") {
		t.Error("no tokens accept the empty one")
	}
	if _, err := NewTokens(first, second, first); err == nil {
		t.Error("three at once")
	}
	if _, err := NewTokens("short"); err == nil {
		t.Error("a short one")
	}
	for c := range 256 {
		want := c < 128 && strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._~+/=-", rune(c))
		if ValidToken(first+string([]byte{byte(c)})) != want {
			t.Errorf("character %#x", c)
		}
	}
}

func TestIDs_AreMintedInTheirForm(t *testing.T) {
	if a, b := NewOperationID(), NewOperationID(); !a.Valid() || a == b {
		t.Error(a, b)
	}
	if !NewProcessID().Valid() || !NewAttachID().Valid() || !NewBootID().Valid() {
		t.Error("a minted id is invalid")
	}
	for _, bad := range []string{"", "op_", "op_0", "OP_" + string(opID[3:]), string(opID) + "\n", string(opID[:34]) + "G", string(prID)} {
		if OperationID(bad).Valid() {
			t.Errorf("%q", bad)
		}
	}
}

func FuzzHeader(f *testing.F) {
	f.Add("provision", Revision, "Bearer "+token, "l", "0", string(opID), "1", "0")
	f.Add("capabilities", Revision, "", "", "", "", "", "")
	f.Add("execute", "", "Bearer", "l l", "01", "op_", "-1", "99999999999999999999")
	f.Fuzz(func(t *testing.T, endpoint, wire, authorization, lease, epoch, operation, deadline, wait string) {
		header := map[string][]string{}
		for name, value := range map[string]string{HeaderWire: wire, HeaderAuthorization: authorization, HeaderLeaseID: lease,
			HeaderLeaseEpoch: epoch, HeaderOperationID: operation, HeaderDeadline: deadline, HeaderWait: wait} {
			if value != "" {
				header[name] = []string{value}
			}
		}
		e := Endpoint(endpoint)
		h, err := ParseRequestHeader(header, e)
		if err != nil {
			if _, status, err := EncodeError(err); err != nil || status < 400 {
				t.Fatalf("a refusal that cannot be sent: %v", err)
			}
			return
		}
		again := map[string][]string{}
		h.Set(again, e)
		if back, err := ParseRequestHeader(again, e); err != nil || back != h {
			t.Fatalf("%+v came back as %+v, %v", h, back, err)
		}
		for name, value := range header {
			if len(again[name]) != 1 || again[name][0] != value[0] {
				t.Fatalf("%s: %q has a second form %q", name, value, again[name])
			}
		}
	})
}

package server

import (
	"bytes"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

func (f *fixture) writeCall(id sandbox.InstanceID, data []byte) wire.FileCall {
	return wire.FileCall{InstanceID: id, Path: "/mnt/rw/f", Size: int64(len(data)), Digest: digestOf(data)}
}

func (f *fixture) read(id sandbox.InstanceID, path string) response {
	f.Helper()
	return f.call(wire.ReadFile, "", wire.ReadFileRequest{InstanceID: id, Path: path, AllowedRoot: "/mnt/rw", MaximumBytes: sandbox.MaxFileBytes})
}

func TestW40AFileOf16MiBIsExactAndNoLonger(t *testing.T) {
	f := newFixture(t, nil)
	id := f.provision("").Value.InstanceID
	data := randomBytes(sandbox.MaxFileBytes)
	ok[wire.Empty](f, f.call(wire.WriteFile, "", f.writeCall(id, data), data...))
	long := append(bytes.Clone(data), 'x')
	f.want(f.call(wire.WriteFile, "", f.writeCall(id, long), long...), sandbox.TooLarge(sandbox.OpWriteFile, "/mnt/rw/f", sandbox.MaxFileBytes))
	f.activate(id)
	all := f.frames(f.read(id, "/mnt/rw/f").body)
	var got []byte
	for _, fr := range all[:len(all)-1] {
		got = append(got, fr.Payload...)
	}
	result, err := wire.Decode[wire.FileResult](all[len(all)-1].Payload)
	if err != nil || !bytes.Equal(got, data) || result.Size != int64(len(data)) || result.Digest != digestOf(data) {
		t.Errorf("%d bytes, %+v, %v", len(got), result, err)
	}
}

func TestW41WhatDoesNotMatchItsDigestIsNotSeen(t *testing.T) {
	f := newFixture(t, nil)
	id := f.provision("").Value.InstanceID
	data := []byte("content")
	for name, c := range map[string]struct {
		change  func(*wire.FileCall)
		data    []byte
		pointer string
	}{
		"digest":     {func(w *wire.FileCall) { w.Digest = digestOf(nil) }, data, "digest"},
		"size above": {func(w *wire.FileCall) { w.Size++ }, data, "size"},
		"no data":    {func(*wire.FileCall) {}, nil, "size"},
	} {
		w := f.writeCall(id, data)
		c.change(&w)
		if e := f.wantTag(f.call(wire.WriteFile, "", w, c.data...), wire.TagMalformed); e.Pointer != c.pointer {
			t.Errorf("%s: %q", name, e.Pointer)
		}
	}
	w := f.writeCall(id, data)
	w.Size--
	f.wantTag(f.call(wire.WriteFile, "", w, data...), wire.TagPayloadTooLarge)
	f.activate(id)
	f.want(f.read(id, "/mnt/rw/f"), sandbox.Failed(sandbox.OpReadFile, sandbox.ReasonNotFound, nil))
}

func TestW42ABatchComesInTheOrderOfTheRequest(t *testing.T) {
	f := newFixture(t, nil)
	id := f.provision("").Value.InstanceID
	q := wire.ReadFilesRequest{InstanceID: id, AllowedRoot: "/mnt/rw"}
	names := []string{"c", "missing", "a", "empty"}
	for _, n := range names {
		q.Files = append(q.Files, sandbox.FileMember{Path: "/mnt/rw/" + n, MaximumBytes: 10})
		q.AggregateMaximumBytes += 10
		if n == "missing" {
			continue
		}
		w := f.writeCall(id, []byte(n)[:len(n)%5])
		w.Path = "/mnt/rw/" + n
		ok[wire.Empty](f, f.call(wire.WriteFile, "", w, []byte(n)[:len(n)%5]...))
	}
	f.activate(id)
	all := f.frames(f.call(wire.ReadFiles, "", q).body)
	index, data := int64(0), []byte(nil)
	for _, fr := range all[:len(all)-1] {
		if fr.Type == wire.TypeData {
			data = append(data, fr.Payload...)
			continue
		}
		item, err := wire.Decode[wire.FileItem](fr.Payload)
		f.must(err)
		if want := []byte(names[index])[:len(names[index])%5]; item.Index != index || (item.Status == wire.ItemOK) != (names[index] != "missing") || item.Status == wire.ItemOK && !bytes.Equal(data, want) {
			t.Errorf("%d: %+v, %q", index, item, data)
		}
		index, data = index+1, nil
	}
	if result, err := wire.Decode[wire.FilesResult](all[len(all)-1].Payload); err != nil || result.Count != 4 || result.TotalBytes != 2 {
		t.Errorf("%+v, %v", result, err)
	}
	q.AggregateMaximumBytes++
	f.want(f.call(wire.ReadFiles, "", q), &sandbox.Error{Kind: sandbox.OperationFailed, Operation: sandbox.OpReadFiles})
}

func TestW45DataAfterTheRequestIsRefused(t *testing.T) {
	f := newFixture(t, nil)
	id := f.provision("").Value.InstanceID
	call, err := wire.Encode(f.writeCall(id, nil))
	f.must(err)
	for _, late := range []wire.Frame{{Type: wire.TypeCall, Payload: []byte("{}")}, {Type: wire.TypePing}, {Type: wire.TypeItem, Payload: []byte("{}")}} {
		body := wire.AppendFrame(nil, wire.Frame{Type: wire.TypeCall, Payload: call})
		body = wire.AppendFrame(body, wire.Frame{Type: wire.TypeData, Payload: nil})
		body = wire.AppendFrame(body, late)
		f.wantTag(f.do(f.request(t.Context(), wire.WriteFile, "", bytes.NewReader(body), int64(len(body)))), wire.TagMalformed)
	}
	for name, body := range map[string][]byte{
		"W56 unknown type": {0x7f, 0, 0, 0, 0}, "W56 2^32-1": {1, 0xff, 0xff, 0xff, 0xff}, "W56 over by one": {1, 0, 0x10, 0, 1},
		"W48 half a head": {1, 0, 0}, "half a payload": {1, 0, 0, 0, 9, '{'}, "data first": {2, 0, 0, 0, 0}, "nothing": {},
	} {
		t.Run(name, func(t *testing.T) {
			f.wantTag(f.do(f.request(t.Context(), wire.WriteFile, "", bytes.NewReader(body), int64(len(body)))), wire.TagMalformed)
		})
	}
}

func TestW46ExecuteHasOneCause(t *testing.T) {
	f := newFixture(t, nil)
	id := f.active()
	settle := func(script string, limit int64) response {
		c := command(script)
		c.OutputLimitBytes, c.TimeoutSeconds = limit, 1
		return f.call(wire.Execute, "", wire.ExecuteCall{InstanceID: id, Command: c})
	}
	for script, want := range map[string]wire.ExecuteResult{
		"exit 7":        {ExitCode: new(int64)},
		"kill -TERM $$": {Signal: "SIGTERM"},
		"sleep 100":     {TimedOut: true},
	} {
		all := f.frames(settle(script, 100).body)
		got, err := wire.Decode[wire.ExecuteResult](all[len(all)-1].Payload)
		if err != nil || (got.ExitCode != nil) != (want.ExitCode != nil) || got.Signal != want.Signal || got.TimedOut != want.TimedOut || got.FinishedAt < got.StartedAt {
			t.Errorf("%s: %+v, %v", script, got, err)
		}
	}
	if r := settle("yes | head -c 100", 100); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	f.want(settle("yes | head -c 101", 100), sandbox.OverLimit(sandbox.StreamStdout, 100))
	both := f.frames(f.call(wire.Execute, "", wire.ExecuteCall{InstanceID: id, Command: command("yes | head -c 16777216; yes | head -c 16777216 >&2")}).body)
	if out, errs := f.output(both, wire.TypeOut), f.output(both, wire.TypeErr); len(out) != 16<<20 || len(errs) != 16<<20 {
		t.Errorf("%d and %d bytes", len(out), len(errs))
	}
}

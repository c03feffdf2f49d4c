package wire

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// byteProbes are of contents, which travel as frames.
func byteProbes() []probe.Probe {
	content := func(id, clause, heading, title string, run func(*probe.T), requires ...report.Token) probe.Probe {
		return probe.Probe{ID: "wire.bytes." + id, Suite: of, Clause: "CF-WI-" + clause, Title: title, Run: run,
			Source: `docs/wire.md "` + heading + `"`, Requires: append([]report.Token{report.Process}, requires...)}
	}
	most := content("most", "40", "Limits", "a file of 16 MiB arrives whole, and one of a byte more is refused by name", largest)
	most.Once = true
	return []probe.Probe{
		most,
		content("announced", "41", "Endpoints", "a file that is not what its call announced is refused, and nothing of it is seen", announced),
		content("ends", "42", "Frames", "an answer of frames begins at its beginning, and nothing comes behind its one last frame", ends),
		content("read", "43", "Endpoints", "a file that is read is of the size and the digest that its answer says", readBack, report.Filesystem),
	}
}

func largest(t *probe.T) {
	o := allocate(t, probe.Shape{Limits: sandbox.Resources{DiskBytes: 64 << 20}})
	// Where streams are kept short the file is, and the one of a byte more is only
	// announced.
	size := min(sandbox.MaxFileBytes, t.StreamBytes()/4)
	path, content := sandbox.OutputPath+"/"+t.Nonce(), bytes.Repeat(t.Bytes(1<<10), int(size>>10))
	q := o.file(path, content)
	call, _ := q.message.(wire.FileCall)
	t.Need("write_file", send(t, q).failure())
	over := o.file(sandbox.OutputPath+"/"+t.Nonce(), append(content, 'x'))
	large, _ := over.message.(wire.FileCall)
	large.Size = sandbox.MaxFileBytes + 1
	over.message = large
	a := send(t, over)
	failure := a.failure()
	t.Check("too-large", errors.Is(failure, &sandbox.Error{Kind: sandbox.FileTooLarge, Path: large.Path, Limit: sandbox.MaxFileBytes}) && a.status == wire.Status(failure),
		"SandboxFileTooLarge of "+large.Path, failure)
	o.activate()
	_, out, err := settled(send(t, o.execute("sha256sum <"+path+"; test ! -e "+large.Path+" && echo none")))
	t.Need("execute", err)
	sum, rest, _ := strings.Cut(string(out), "\n")
	got, _, _ := strings.Cut(sum, " ")
	t.Check("whole", "sha256:"+got == string(call.Digest), string(call.Digest), got)
	t.Check("no-effect", rest == "none\n", "no file of a byte more", rest)
}

func announced(t *probe.T) {
	o := allocate(t, probe.Shape{})
	content := []byte(t.Nonce())
	dir := sandbox.OutputPath + "/" + t.Nonce()
	t.Need("write_file", send(t, o.file(dir+"/right", content)).failure())
	for _, c := range []struct {
		id     string
		change func(*wire.FileCall)
	}{
		{"digest", func(f *wire.FileCall) { f.Digest = wire.RequestDigest([]byte(t.Nonce())) }},
		{"more", func(f *wire.FileCall) { f.Size-- }},
		{"less", func(f *wire.FileCall) { f.Size++ }},
	} {
		q := o.file(dir+"/"+c.id, content)
		call, _ := q.message.(wire.FileCall)
		c.change(&call)
		q.message = call
		turnedDown(t, c.id, send(t, q))
	}
	o.activate()
	_, out, err := settled(send(t, o.execute("ls "+dir)))
	t.Check("no-effect", err == nil && string(out) == "right\n", "the one file that was right", string(out))
}

// last reads a whole answer of frames and wants one terminal frame, at its end.
func last(t *probe.T, id string, a answer) (frames []wire.Frame) {
	t.Need(id, a.failure())
	frames, err := split(a.body)
	terminal := 0
	for _, f := range frames {
		if f.Type == wire.TypeResult || f.Type == wire.TypeError {
			terminal++
		}
	}
	ok := err == nil && terminal == 1 && frames[len(frames)-1].Type == wire.TypeResult
	if !t.Check(id, ok, "frames of which the last one is the one result", strconv.Itoa(len(frames))+" frames") {
		t.Stop()
	}
	return frames
}

func ends(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	out, errs := t.Nonce(), t.Nonce()
	ends := map[wire.Type]int64{}
	for _, f := range last(t, "execute", send(t, o.execute("echo "+out+"; echo "+errs+" >&2"))) {
		switch f.Type {
		case wire.TypeOut, wire.TypeErr:
			at, data, err := f.Output()
			t.Check("offset", err == nil && at == ends[f.Type], strconv.FormatInt(ends[f.Type], 10), at)
			ends[f.Type] = at + int64(len(data))
		case wire.TypeResult:
			_, err := wire.Decode[wire.ExecuteResult](f.Payload)
			t.Check("result", err == nil, "a result of execute", err)
		default:
			t.Check("frame", false, "out, err or the result", "type "+strconv.Itoa(int(f.Type)))
		}
	}
	t.Check("length", ends[wire.TypeOut] == int64(len(out)+1), strconv.Itoa(len(out)+1), ends[wire.TypeOut])
}

func readBack(t *probe.T) {
	o := allocate(t, probe.Shape{})
	path, content := sandbox.OutputPath+"/"+t.Nonce(), t.Bytes(3000)
	t.Need("write_file", send(t, o.file(path, content)).failure())
	o.activate()
	a := send(t, o.request(wire.ReadFile, wire.ReadFileRequest{InstanceID: o.id, Path: path, AllowedRoot: sandbox.OutputPath, MaximumBytes: int64(len(content))}))
	var got []byte
	for _, f := range last(t, "read_file", a) {
		if f.Type == wire.TypeData {
			got = append(got, f.Payload...)
			continue
		}
		r, err := wire.Decode[wire.FileResult](f.Payload)
		t.Check("result", err == nil && r.Size == int64(len(content)) && r.Digest == wire.RequestDigest(content), "the size and the digest of the file", err)
	}
	t.Check("content", bytes.Equal(got, content), "the bytes that were written", strconv.Itoa(len(got))+" bytes")
	if t.Optional().ReadFiles == nil {
		return
	}
	a = send(t, o.request(wire.ReadFiles, wire.ReadFilesRequest{
		InstanceID: o.id, AllowedRoot: sandbox.OutputPath, Files: []sandbox.FileMember{{Path: path, MaximumBytes: int64(len(content))}},
		AggregateMaximumBytes: int64(len(content)),
	}))
	for _, f := range last(t, "read_files", a) {
		if f.Type == wire.TypeItem {
			item, err := wire.Decode[wire.FileItem](f.Payload)
			t.Check("item", err == nil && item.Digest == wire.RequestDigest(content), "the digest of the file", err)
		}
	}
}

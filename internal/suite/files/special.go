package files

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

func special() []probe.Probe {
	return suite([]probe.Probe{
		{ID: "files.fifo-read", Clause: "CF-FS-10", Source: admits, Requires: []report.Token{report.Filesystem},
			Title: "a FIFO that nobody writes to is refused at once, and so is a device", Run: fifoRead},
		{ID: "files.fifo-batch", Clause: "CF-FS-11", Source: admits, Requires: []report.Token{report.ReadFiles},
			Title: "a FIFO in a batch is refused at once", Run: fifoBatch},
	})
}

// soon is how long a refusal may take. A read that honours its context ends
// then; one that does not is the engine's matter.
func soon(t *probe.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), 10*time.Second)
}

// fifoRead takes not_regular and not_found alike: a FIFO may live in a kernel
// that the trusted port does not see.
func fifoRead(t *probe.T) {
	m := t.Machine(probe.Shape{})
	fifo, device, file, hard := t.Nonce(), t.Nonce(), t.Nonce(), t.Nonce()
	made(t, m, "mkfifo "+fifo+" && [ -p "+fifo+" ]")
	type named struct{ id, name string }
	names := []named{{"fifo", fifo}}
	if sees(m, "mknod "+device+" c 1 5") {
		names = append(names, named{"device", device})
	} else {
		t.Observe("the workload cannot make a device")
	}
	for _, n := range names {
		ctx, cancel := soon(t)
		_, err := t.Provider().ReadFile(ctx, m.ID, sandbox.FileRead{Path: sandbox.OutputPath + "/" + n.name, AllowedRoot: sandbox.OutputPath, MaximumBytes: 100})
		cancel()
		t.Check(n.id, errors.Is(err, &sandbox.Error{Kind: sandbox.OperationFailed}), "a refusal: not_regular, or not_found", err)
	}
	// A hard link is another name of the same file: right or wrong to read, as
	// long as it is told.
	if sees(m, "printf "+hard+" > "+file+" && ln "+file+" "+hard) {
		got, err := m.Read(sandbox.OutputPath+"/"+hard, sandbox.OutputPath, 100)
		t.Observe("a hard link inside is read: %v", err == nil && bytes.Equal(got, []byte(hard)))
	} else {
		t.Observe("the workload cannot make a hard link")
	}
}

func fifoBatch(t *probe.T) {
	m := t.Machine(probe.Shape{})
	fifo := t.Nonce()
	made(t, m, "mkfifo "+fifo+" && [ -p "+fifo+" ]")
	ctx, cancel := soon(t)
	defer cancel()
	got, err := t.Optional().ReadFiles.ReadFiles(ctx, m.ID, sandbox.FilesRead{AllowedRoot: sandbox.OutputPath, AggregateMaximumBytes: 100,
		Files: []sandbox.FileMember{{Path: sandbox.OutputPath + "/" + fifo, MaximumBytes: 100}}})
	t.Need("answered", err)
	if len(got) == 1 { // else it is the standing check's
		t.Check("refused", got[0].Refused != "", "a refusal: not_regular, or not_found", got[0].Content)
	}
}

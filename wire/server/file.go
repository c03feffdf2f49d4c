package server

import (
	"context"
	"crypto/sha256"
	"strconv"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

func (c *call) writeFile() error {
	m, err := frameCall[wire.FileCall](c)
	if err != nil {
		return err
	}
	data, err := c.content(m, m.Path, m.Size, m.Digest)
	if err != nil {
		return err
	}
	return c.mutate(m.InstanceID, func(ctx context.Context, _ *operation) (effect, error) {
		w := sandbox.FileWrite{Path: m.Path, Content: data, Executable: m.Executable, Symlink: m.Symlink}
		return effect{message: wire.Empty{}}, c.s.provider.WriteFile(ctx, m.InstanceID, w)
	})
}

// execute answers once the command has settled: a settlement is whole, and so
// its answer can be given again.
func (c *call) execute() error {
	c.sum = sha256.New()
	m, err := frameCall[wire.ExecuteCall](c)
	if err != nil {
		return err
	}
	if m.Command.Stdin, err = c.data(0, sandbox.MaxFileBytes); err != nil {
		return err
	}
	return c.mutate(m.InstanceID, func(ctx context.Context, _ *operation) (effect, error) {
		settled, err := c.s.provider.Execute(ctx, m.InstanceID, m.Command)
		if err != nil {
			return effect{}, err
		}
		f := newFramed(len(settled.Stdout) + len(settled.Stderr) + 1<<10)
		result := wire.ExecuteResult{
			ExitCode: settled.Exit.ExitCode, Signal: settled.Exit.Signal, TimedOut: settled.TimedOut,
			StartedAt: settled.StartedAt, FinishedAt: settled.FinishedAt,
		}
		err = f.Output(wire.TypeOut, 0, settled.Stdout)
		if err == nil {
			err = f.Output(wire.TypeErr, 0, settled.Stderr)
		}
		if err == nil {
			err = f.Message(wire.TypeResult, result)
		}
		return effect{answer: answer{status: 200, framed: true, body: f.Bytes()}}, err
	})
}

// stream answers a framed response piece by piece. fill's first failure after
// something was written ends the response as an error frame.
func (c *call) stream(fill func(w *wire.Writer) error) error {
	c.s.header(c.w, true)
	c.w.WriteHeader(200)
	o := newOutbox(c.w, c.s.opt.Stall)
	w := wire.NewWriter(o)
	if err := fill(w); err != nil {
		if err := w.Error(c.s.typed(c.endpoint, err)); err != nil {
			return nil // the connection is broken, or the failure was its end
		}
	}
	o.release()
	return nil
}

const (
	frameHead = 5 // bytes of a frame before its payload
	// noDigest is as long as any.
	noDigest = sandbox.Digest("sha256:0000000000000000000000000000000000000000000000000000000000000000")
)

func (c *call) readFile() error {
	m, err := request[wire.ReadFileRequest](c)
	if err != nil {
		return err
	}
	if err := c.scope(m.InstanceID); err != nil {
		return err
	}
	ctx, cancel := c.context()
	defer cancel()
	data, err := c.s.provider.ReadFile(ctx, m.InstanceID, sandbox.FileRead{Path: m.Path, AllowedRoot: m.AllowedRoot, MaximumBytes: m.MaximumBytes})
	if err != nil {
		return err
	}
	sum := wire.NewDigester()
	sum.Add(data)
	// Everything of the answer but its digest is known, so its length is: whoever
	// reads it can make room, and nothing has to cut it into chunks.
	result, err := wire.Encode(wire.FileResult{Size: int64(len(data)), Digest: noDigest})
	if err != nil {
		return err
	}
	frames := (len(data) + wire.MaxFrameBytes - 1) / wire.MaxFrameBytes
	c.w.Header().Set("Content-Length", strconv.Itoa(len(data)+len(result)+(frames+1)*frameHead))
	return c.stream(func(w *wire.Writer) error {
		if err := w.Data(data); err != nil {
			return err
		}
		return w.Message(wire.TypeResult, wire.FileResult{Size: int64(len(data)), Digest: sum.Digest()})
	})
}

func (c *call) readFiles() error {
	m, err := request[wire.ReadFilesRequest](c)
	if err != nil {
		return err
	}
	if err := c.scope(m.InstanceID); err != nil {
		return err
	}
	if c.s.optional.ReadFiles == nil {
		return &wire.Error{Tag: wire.TagMemberUnknown}
	}
	ctx, cancel := c.context()
	defer cancel()
	files, err := c.s.optional.ReadFiles.ReadFiles(ctx, m.InstanceID, sandbox.FilesRead{
		AllowedRoot: m.AllowedRoot, Files: m.Files, AggregateMaximumBytes: m.AggregateMaximumBytes,
	})
	if err != nil {
		return err
	}
	return c.stream(func(w *wire.Writer) error {
		total, sum := int64(0), wire.NewDigester()
		for i, f := range files {
			item := wire.FileItem{Index: int64(i), Status: wire.ItemRefused, Reason: f.Refused}
			if f.Refused == "" {
				size := int64(len(f.Content))
				sum.Reset()
				sum.Add(f.Content)
				total += size
				if err := w.Data(f.Content); err != nil {
					return err
				}
				item = wire.FileItem{Index: int64(i), Status: wire.ItemOK, Size: &size, Digest: sum.Digest()}
			}
			if err := w.Message(wire.TypeItem, item); err != nil {
				return err
			}
		}
		return w.Message(wire.TypeResult, wire.FilesResult{Count: int64(len(files)), TotalBytes: total})
	})
}

func (c *call) listDir() error {
	m, err := request[wire.ListRequest](c)
	if err != nil {
		return err
	}
	if err := c.scope(m.InstanceID); err != nil {
		return err
	}
	if c.s.optional.ListDir == nil {
		return sandbox.Conflict(sandbox.OpListDir, string(sandbox.OpListDir), sandbox.ActualListDirUnsupported)
	}
	ctx, cancel := c.context()
	defer cancel()
	entries, err := c.s.optional.ListDir.ListDir(ctx, m.InstanceID, sandbox.Listing{Root: m.Root, MaxEntries: m.MaxEntries})
	if err != nil {
		return err
	}
	return c.stream(func(w *wire.Writer) error {
		if err := w.Entries(entries); err != nil {
			return err
		}
		return w.Message(wire.TypeResult, wire.ListResult{Count: int64(len(entries))})
	})
}

func (c *call) listProjectDir() error {
	m, err := request[wire.ListRequest](c)
	if err != nil {
		return err
	}
	if err := c.scope(m.InstanceID); err != nil {
		return err
	}
	if c.s.optional.ListProjectDir == nil {
		return sandbox.Conflict(sandbox.OpListProjectDir, string(sandbox.OpListProjectDir), sandbox.ActualListProjectDirUnsupported)
	}
	ctx, cancel := c.context()
	defer cancel()
	l, err := c.s.optional.ListProjectDir.ListProjectDir(ctx, m.InstanceID, sandbox.Listing{Root: m.Root, MaxEntries: m.MaxEntries})
	if err != nil {
		return err
	}
	return c.stream(func(w *wire.Writer) error {
		if err := w.Leaves(l.Leaves); err != nil {
			return err
		}
		return w.Message(wire.TypeResult, wire.ProjectResult{Count: int64(len(l.Leaves)), Complete: l.Complete})
	})
}

package proxy

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/client"
)

// The longest file and a batch of 64 MiB pass with the settings of the page.
// Without them nginx refuses the file: the call ends, and says whose limit it
// was.
func TestBodies(t *testing.T) {
	t.Parallel()
	content := make([]byte, sandbox.MaxFileBytes)
	chacha := rand.NewChaCha8([32]byte{2})
	_, _ = chacha.Read(content)
	each(t, func(t *testing.T, p program) {
		for _, kind := range []string{"default", "settings"} {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				c := begin(t, p, kind, serve(t).address, nil).connect(t, nil)
				id := provisioned(t, c)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := c.WriteFile(ctx, id, sandbox.FileWrite{Path: mount + "/0", Content: content})
				if p.name == "nginx" && kind == "default" {
					refused, ok := errors.AsType[*client.BodyRefused](err)
					if !ok || refused.Endpoint != wire.WriteFile || refused.Bytes <= int64(len(content)) {
						t.Fatalf("%v, want a refused body", err)
					}
					if !errors.Is(err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonIndeterminate}) {
						t.Errorf("%v", err)
					}
					return
				}
				q := sandbox.FilesRead{AllowedRoot: mount}
				for i := range 4 {
					path := mount + "/" + strconv.Itoa(i)
					if err == nil && i > 0 {
						err = c.WriteFile(ctx, id, sandbox.FileWrite{Path: path, Content: content})
					}
					q.Files = append(q.Files, sandbox.FileMember{Path: path, MaximumBytes: int64(len(content))})
					q.AggregateMaximumBytes += int64(len(content))
				}
				if err == nil {
					_, err = c.Activate(ctx, id)
				}
				if err != nil {
					t.Fatal(err)
				}
				all, err := c.ReadFiles(ctx, id, q)
				if err != nil || len(all) != len(q.Files) {
					t.Fatalf("%d files, %v", len(all), err)
				}
				for i, f := range all {
					if !bytes.Equal(f.Content, content) {
						t.Errorf("file %d: %d bytes, %v", i, len(f.Content), f.Refused)
					}
				}
			})
		}
	})
}

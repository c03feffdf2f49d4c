package runner

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/checkfu/checkfu/sandbox"
)

// A file above what is read from outside is brought by the machine, and believed by
// the listing alone: what is not its very bytes is not there, and the rest is.
func TestFetchLarge(t *testing.T) {
	w := newWorld(t, "")
	w.spec.Command = nil
	_, in, err := w.runner.Prepare(t.Context(), w.spec, holder)
	if err != nil {
		t.Fatal(err)
	}
	w.spec.Command = []string{"sh", "-c", "mkdir /mnt/session/outputs/d; yes | head -c 17000000 >/mnt/session/outputs/d/big; echo s >/mnt/session/outputs/d/small"}
	if r, err := w.as().Execute(t.Context(), w.spec, in); err != nil || r.Cause != CauseExited || *r.Exit.ExitCode != 0 {
		t.Fatalf("%+v, %v: %s", r, err, w.err.String())
	}
	const at = sandbox.OutputPath + "/d"
	whole := bytes.Repeat([]byte("y\n"), 8_500_000)
	other := bytes.Clone(whole)
	other[len(other)/2] = 'x'
	broken := errors.New("no cat")
	writes := func(content []byte, then error) Large {
		return func(_ context.Context, path string, w io.Writer) error {
			if path != at+"/big" {
				t.Errorf("it was asked for %s", path)
			}
			for rest := content; len(rest) > 0; {
				n, err := w.Write(rest[:min(len(rest), 1<<16)])
				if err != nil {
					return broken // as a program that is ended
				}
				rest = rest[n:]
			}
			return then
		}
	}
	for name, c := range map[string]struct {
		large   Large
		refused string
		err     error
	}{
		"whole":       {writes(whole, nil), "", nil},
		"nobody":      {nil, "too_large", nil},
		"other bytes": {writes(other, nil), "changed", nil},
		"too few":     {writes(whole[2:], nil), "changed", nil},
		"too many":    {writes(append(bytes.Clone(whole), "y\n"...), nil), "changed", nil},
		"no program":  {writes(whole[:100], broken), "too_large", broken},
	} {
		dir := t.TempDir()
		outputs, err := w.as().Fetch(t.Context(), in, at, Destination{Dir: dir, Name: "to", Large: c.large})
		got := map[string]string{}
		for _, o := range outputs {
			got[o.Path] = o.Refused
		}
		if want := map[string]string{"to/big": c.refused, "to/small": ""}; !errors.Is(err, c.err) || c.err == nil && err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		big, rerr := os.ReadFile(filepath.Join(dir, "to", "big"))
		if there := c.refused == ""; there != (rerr == nil) || there && !bytes.Equal(big, whole) {
			t.Errorf("%s: %d bytes, %v", name, len(big), rerr)
		}
		want := 1
		if c.refused == "" {
			want = 2
		}
		if left, err := os.ReadDir(filepath.Join(dir, "to")); err != nil || len(left) != want {
			t.Errorf("%s: left %v, %v", name, left, err)
		}

		if name != "whole" && name != "other bytes" && name != "nobody" {
			continue // as above
		}
		var b bytes.Buffer
		outputs, err = w.as().Fetch(t.Context(), in, at+"/big", Destination{Writer: &b, Large: c.large})
		if err != nil || outputs[0].Refused != c.refused || c.refused == "" && !bytes.Equal(b.Bytes(), whole) {
			t.Errorf("%s, to a stream: %+v, %v", name, outputs, err)
		}
	}
	if err := w.provider.Destroy(t.Context(), in.InstanceID); err != nil {
		t.Error(err)
	}
	w.nothingLeft()
}

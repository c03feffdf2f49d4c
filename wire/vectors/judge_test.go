package vectors_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/wire/vectors"
)

// broken returns texts that are near to golden messages: a byte changed, gone,
// doubled, or a piece of another text put in. The same every time.
func broken(t *testing.T) (texts [][]byte, schemas []string) {
	r := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"null", "-0", "1.0", "1e3", "01", "9007199254740991", "9007199254740992", `"`, `\u0000`, `\u0000ff`, `\ud800`, `\ud83d\ude00`,
		"\ufeff", "\xff", "\xed\xa0\x80", "\u2028", "\x00", "\n", " ", "{}", "[]", ",", ":", `"a":1,`, "é", "NaN", "Infinity", "//", "true", "\\", "\x7f", "__proto__", "\f", "\u00a0"}
	for _, s := range scenarios(t, "message", "error", "refused-message") {
		whole := raw(t, s.Hex)
		texts, schemas = append(texts, whole), append(schemas, s.Schema)
		for range 24 {
			data := bytes.Clone(whole)
			at := r.IntN(len(data) + 1)
			switch r.IntN(5) {
			case 0:
				data = slices.Insert(data, at, []byte(pieces[r.IntN(len(pieces))])...)
			case 1:
				if at < len(data) {
					data[at] = byte(r.IntN(256))
				}
			case 2:
				data = slices.Delete(data, at, min(len(data), at+1+r.IntN(3)))
			case 3:
				data = slices.Insert(data, at, data[at:min(len(data), at+1+r.IntN(12))]...)
			case 4: // in place of a value
				from := bytes.IndexAny(data[at:], ":[")
				if from < 0 {
					continue
				}
				from += at + 1
				end := bytes.IndexAny(data[from:], ",}]")
				if end < 0 {
					continue
				}
				data = slices.Replace(data, from, from+end, []byte(pieces[r.IntN(len(pieces))])...)
			}
			texts, schemas = append(texts, data), append(schemas, s.Schema)
		}
	}
	return texts, schemas
}

// untyped are the refusals that no type is needed for: a codec in any language
// has to see them.
var untyped = []canonical.Reason{
	canonical.ReasonSyntax, canonical.ReasonTruncated, canonical.ReasonTrailingData, canonical.ReasonByteOrderMark, canonical.ReasonInvalidUTF8,
	canonical.ReasonLoneSurrogate, canonical.ReasonControlCharacter, canonical.ReasonDuplicateKey, canonical.ReasonNull, canonical.ReasonNotInteger,
	canonical.ReasonNegativeZero,
}

// TestCodecsInOtherLanguages_AgreeOnBrokenTexts: thousands of texts near to
// right ones. What the codec takes, the others take; what it refuses for a
// reason that needs no type, they refuse.
func TestCodecsInOtherLanguages_AgreeOnBrokenTexts(t *testing.T) {
	texts, schemas := broken(t)
	var lines bytes.Buffer
	for _, text := range texts {
		lines.WriteString(hex.EncodeToString(text) + "\n")
	}
	for _, l := range languages {
		t.Run(l.program, func(t *testing.T) {
			verdicts := judge(t, l.program, l.file, lines.String())
			if len(verdicts) != len(texts) {
				t.Fatalf("%d verdicts on %d texts", len(verdicts), len(texts))
			}
			taken, refused := 0, 0
			for i, text := range texts {
				err := decode(t, schemas[i], text)
				theirs := verdicts[i] == "taken"
				var c *canonical.Error
				switch {
				case err == nil:
					taken++
					if !theirs {
						t.Errorf("%s: the codec takes %q", verdicts[i], text)
					}
				case errors.As(err, &c) && slices.Contains(untyped, c.Reason):
					refused++
					if theirs {
						t.Errorf("taken: the codec refuses %q: %v", text, err)
					}
				}
			}
			t.Logf("%d texts: both take %d, both refuse %d, the rest is a matter of types", len(texts), taken, refused)
			if taken < 100 || refused < 1000 {
				t.Error("too few to mean something")
			}
		})
	}
}

func judge(t *testing.T, program, file, lines string) []string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("no %s here", program)
	}
	script, err := fs.ReadFile(vectors.Files(), file)
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(t.TempDir(), file)
	if err := os.WriteFile(own, script, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, own, "--judge")
	cmd.Stdin = strings.NewReader(lines)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

package vectors_test

import (
	"encoding/json"
	"io/fs"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/authorkit"
)

// review is one row of REVIEWS.md.
type review struct{ date, kit, wire, evidence, media, bundle, openapi, why string }

func reviews(t *testing.T, text string) (rows []review) {
	t.Helper()
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 10 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "20") {
			continue
		}
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		rows = append(rows, review{cells[1], cells[2], cells[3], cells[4], cells[5], cells[6], cells[7], cells[8]})
	}
	return rows
}

// faults says what is wrong with the reviews of now.
func faults(rows []review, now authorkit.Revisions) (all []string) {
	if len(rows) == 0 {
		return []string{"there is no review"}
	}
	for i, r := range rows {
		if r.why == "" {
			all = append(all, r.date+": no reason")
		}
		if i == 0 {
			continue
		}
		before := rows[i-1]
		if r.date < before.date {
			all = append(all, r.date+": before its predecessor")
		}
		if r.wire == before.wire && (r.bundle != before.bundle || r.openapi != before.openapi) && len(r.why) < 40 {
			all = append(all, r.date+": a document changed under the same literal, and nothing says why that is right")
		}
	}
	last := rows[len(rows)-1]
	held := authorkit.Revisions{Kit: last.kit, Wire: last.wire, Evidence: last.evidence, MediaType: last.media, Bundle: now.Bundle, OpenAPI: now.OpenAPI}
	if held != now || last.bundle != string(now.Bundle) || last.openapi != string(now.OpenAPI) {
		all = append(all, "the last review is of something else: a literal or a document changed without one")
	}
	return all
}

func revisions(t *testing.T) (now authorkit.Revisions) {
	t.Helper()
	data, err := fs.ReadFile(vectorsFiles, "revisions.json")
	if err == nil {
		err = json.Unmarshal(data, &now)
	}
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func TestRevisions_ChangeWithAReviewOnly(t *testing.T) {
	text, err := fs.ReadFile(vectorsFiles, "REVIEWS.md")
	if err != nil {
		t.Fatal(err)
	}
	now := revisions(t)
	for _, fault := range faults(reviews(t, string(text)), now) {
		t.Error(fault)
	}
	if t.Failed() {
		t.Logf("a row that would do, with a reason in place of the dots:\n| 20YY-MM-DD | `%s` | `%s` | `%s` | `%s` | `%s` | `%s` | … |",
			now.Kit, now.Wire, now.Evidence, now.MediaType, now.Bundle, now.OpenAPI)
	}
}

func TestReviews_CanFail(t *testing.T) {
	now := revisions(t)
	row := review{"2026-11-30", now.Kit, now.Wire, now.Evidence, now.MediaType, string(now.Bundle), string(now.OpenAPI), "the first"}
	if f := faults([]review{row}, now); len(f) > 0 {
		t.Fatal(f)
	}
	for name, change := range map[string]func(*authorkit.Revisions){
		"wire":     func(r *authorkit.Revisions) { r.Wire = "checkfu.sandbox-wire.v2" },
		"kit":      func(r *authorkit.Revisions) { r.Kit += "x" },
		"evidence": func(r *authorkit.Revisions) { r.Evidence += "x" },
		"media":    func(r *authorkit.Revisions) { r.MediaType += "x" },
		"bundle":   func(r *authorkit.Revisions) { r.Bundle = "sha256:0" },
		"openapi":  func(r *authorkit.Revisions) { r.OpenAPI = "sha256:0" },
	} {
		changed := now
		change(&changed)
		if len(faults([]review{row}, changed)) == 0 {
			t.Errorf("another %s passes without a review", name)
		}
	}
	before := row
	before.bundle = "sha256:0"
	if len(faults([]review{before, row}, now)) == 0 {
		t.Error("a document changed under the same literal without a word")
	}
	row.why = ""
	if len(faults([]review{row}, now)) == 0 || len(faults(nil, now)) == 0 {
		t.Error("no reason, or no review, is enough")
	}
}

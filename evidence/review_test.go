package evidence_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/evidence"
	"github.com/checkfu/checkfu/evidence/vectors"
	"github.com/checkfu/checkfu/internal/canonical"
)

// review is one row of REVIEWS.md.
type review struct{ date, file, listed, keys, why string }

func reviews(text string) (rows []review) {
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 7 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "20") {
			continue
		}
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		rows = append(rows, review{cells[1], cells[2], cells[3], cells[4], cells[5]})
	}
	return rows
}

// faults says what is wrong with the reviews of a file of attesters.
func faults(rows []review, file []byte) (all []string) {
	set, err := evidence.ParseAttesters(file)
	if err != nil {
		return []string{err.Error()}
	}
	if len(rows) == 0 {
		return []string{"there is no review"}
	}
	for i, r := range rows {
		if len(r.why) < 40 {
			all = append(all, r.date+": no reason")
		}
		if i > 0 && r.date < rows[i-1].date {
			all = append(all, r.date+": before its predecessor")
		}
	}
	last := rows[len(rows)-1]
	if last.file != canonical.Digest(file) || last.listed != strconv.Itoa(len(set.Attesters)) {
		all = append(all, "the last review is of another set")
	}
	for _, a := range set.Attesters {
		if !strings.Contains(last.keys, a.Key) {
			all = append(all, a.Name+": its key is not in the review")
		}
	}
	return all
}

// TestCurrentPosture_TheSetChangesWithAReviewOnly, and it is empty.
func TestCurrentPosture_TheSetChangesWithAReviewOnly(t *testing.T) {
	text, err := os.ReadFile("REVIEWS.md")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("attesters.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range faults(reviews(string(text)), file) {
		t.Error(fault)
	}
	if len(reviews(string(text))) == 1 && len(evidence.ReviewedAttesters().Attesters) != 0 {
		t.Error("the first review is of an empty set")
	}
	if t.Failed() {
		t.Logf("the file is %s", canonical.Digest(file))
	}
}

func TestReviews_CanFail(t *testing.T) {
	const key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
	file := []byte(`{"attesters":[{"key":"` + key + `","name":"somebody"}],"schema":"` + evidence.AttestersSchema + `"}`)
	good := review{"2027-01-01", canonical.Digest(file), "1", key, strings.Repeat("because ", 8)}
	if f := faults([]review{good}, file); len(f) > 0 {
		t.Fatal(f)
	}
	for name, change := range map[string]func(*review){
		"another file": func(r *review) { r.file = canonical.Digest(nil) },
		"no key":       func(r *review) { r.keys = "none" },
		"another key":  func(r *review) { r.keys = strings.Repeat("ab", 32) },
		"nobody":       func(r *review) { r.listed = "0" },
		"no reason":    func(r *review) { r.why = "" },
	} {
		changed := good
		change(&changed)
		if len(faults([]review{changed}, file)) == 0 {
			t.Errorf("%s passes", name)
		}
	}
	later := good
	later.date = "2026-01-01"
	if len(faults([]review{good, later}, file)) == 0 || len(faults(nil, file)) == 0 || len(faults([]review{good}, []byte("{}"))) == 0 {
		t.Error("a row out of order, no row, or no set is enough")
	}
}

// TestCurrentPosture_NoTestKeyIsListed: their private halves are published.
func TestCurrentPosture_NoTestKeyIsListed(t *testing.T) {
	data, err := fs.ReadFile(vectors.Files(), "keys.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Keys []struct{ Name, Public string }
	}
	if err := json.Unmarshal(data, &file); err != nil || len(file.Keys) == 0 {
		t.Fatal(err, "no test keys")
	}
	for _, k := range file.Keys {
		for _, a := range evidence.ReviewedAttesters().Attesters {
			if a.Key == k.Public {
				t.Errorf("%s is listed as %s", k.Name, a.Name)
			}
		}
	}
}

package conformance

import (
	_ "embed"
	"strings"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/canonical"
)

// matrix is the golden file of the suite's own test: which wrong providers it
// catches, and by which check.
//
//go:embed matrix.golden
var matrix string

// Matrix returns how many saboteurs the suite is known to kill, and the digest
// of the list.
func Matrix() report.Mutation {
	m := report.Mutation{MatrixDigest: canonical.Digest([]byte(matrix))}
	for line := range strings.Lines(matrix) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) >= 2 && fields[0] == "saboteur" {
			m.Total++
			if fields[len(fields)-1] == "killed" {
				m.Killed++
			}
		}
	}
	return m
}

// MatrixText is the list itself: one line for each saboteur, each check that
// was switched off, and each fault that waits for its member.
func MatrixText() string { return matrix }

// Package checkfu holds the sources of the SDK: what a provider in Go compiles
// against and serves itself with, and nothing else. checkfu sandbox init hands
// them out, so that a skeleton builds without a network. A provider imports the
// packages themselves and not this one.
//
// Bounds: files of standard Go alone; no dependency.
// Errors: none. Concurrency: immutable.
// Source: contract "Machine-readable author kit".
package checkfu

import (
	"embed"
	"io/fs"
	"strings"
)

//go:embed LICENSE
//go:embed internal/canonical/*.go sandbox/*.go wire/*.go
//go:embed wire/server/*.go wire/server/store/*.go wire/server/logstore/*.go
var sources embed.FS

// SDK is the sources, each at its place in this module, without their tests.
func SDK() fs.FS { return untested{sources} }

// untested hides the tests of its files.
type untested struct{ embed.FS }

// ReadDir lists what is no test.
func (u untested) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := u.FS.ReadDir(name)
	var kept []fs.DirEntry
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), "_test.go") {
			kept = append(kept, e)
		}
	}
	return kept, err
}

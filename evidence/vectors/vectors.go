// Package vectors is what somebody needs to verify a receipt in any language:
// the JSON Schemas of the three files and golden vectors, one scenario a file.
// README.md says how to use them.
//
// The keys in here are test keys. Their private halves are published in
// keys.json, so whatever they sign says nothing.
//
// Trusts: nothing; it is data. Units: paths have slashes and begin at this
// directory. Concurrency: all functions may be called at any time.
// Source: grading "What a signature proves"; contract "Machine-readable author
// kit".
package vectors

import (
	"embed"
	"io/fs"
)

//go:embed README.md keys.json check.py schema scenario
var files embed.FS

// Files are all of them, read-only.
func Files() fs.FS { return files }

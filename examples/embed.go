// Package examples holds providers as strangers would write them, from the
// author kit alone. They are programs of their own; what is exported here are
// their files, from which checkfu sandbox init makes a skeleton.
//
// Concurrency: immutable. Errors: none.
// Source: contract "Machine-readable author kit".
package examples

import (
	"embed"
	"io/fs"
)

//go:embed provider-python/*.py provider-python/run
//go:embed provider-typescript/*.mjs provider-typescript/*.d.ts provider-typescript/*.json
//go:embed provider-typescript/machine.sh provider-typescript/run
//go:embed provider-go/*.go provider-go/run
var files embed.FS

// Go is the provider in Go, without its README. The packages of this module that
// it imports are those of the SDK.
func Go() fs.FS { return of("provider-go") }

// Python is the provider in Python, without its README and its kit.
func Python() fs.FS { return of("provider-python") }

// TypeScript is the provider in TypeScript, likewise.
func TypeScript() fs.FS { return of("provider-typescript") }

// of is the directory of one example.
func of(name string) fs.FS {
	sub, err := fs.Sub(files, name)
	if err != nil { // the name is a constant
		panic(err)
	}
	return sub
}

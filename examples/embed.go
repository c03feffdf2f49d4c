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
var files embed.FS

// Python is the provider in Python, without its README and its kit.
func Python() fs.FS {
	sub, err := fs.Sub(files, "provider-python")
	if err != nil { // the name is a constant
		panic(err)
	}
	return sub
}

// Package initbin holds the built guest init, so that one file is enough to
// run machines.
//
// The binary is a build product and not in the tree; where it was not built
// before this package, Bytes says so.
// Source: design "One guest init for all of ours".
package initbin

import (
	"embed"
	"errors"
	"io/fs"
)

//go:embed all:bin
var bin embed.FS

// BuildCommand makes the binary that this package embeds. It is run in the
// module's root directory.
const BuildCommand = `CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o internal/guest/initbin/bin/checkfu-init ./cmd/checkfu-init`

// MissingError says that this program was built without the guest init.
type MissingError struct{}

func (*MissingError) Error() string {
	return "this checkfu was built without its guest init; build it with: " + BuildCommand + " and build checkfu again"
}

// Bytes returns the guest init, a static executable for this architecture.
// The caller owns the copy. Errors: *MissingError.
func Bytes() ([]byte, error) {
	b, err := bin.ReadFile("bin/checkfu-init")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &MissingError{}
	}
	return b, err
}

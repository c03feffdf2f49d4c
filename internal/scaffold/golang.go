package scaffold

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/checkfu/checkfu"
)

// goVersion is the language of the sources that a skeleton in Go carries.
const goVersion = "1.26"

// module is the SDK's, and the directory of a skeleton that holds it.
const (
	module    = "github.com/checkfu/checkfu"
	moduleDir = "checkfu"
)

// modules makes the two modules of a skeleton in Go: its own, and the SDK beside
// it under its own name. One line of the first points to the second; without it
// the same code takes the SDK from a network. They are not among the layers,
// because a directory with a go.mod is a module of its own in this tree too.
func modules(dir string) error {
	sdk := filepath.Join(dir, moduleDir)
	if err := lay(sdk, checkfu.SDK(), as); err != nil {
		return err
	}
	write := func(path, text string) error { return os.WriteFile(path, []byte(text), 0o644) }
	return errors.Join(
		write(filepath.Join(sdk, "go.mod"), fmt.Sprintf("module %s\n\ngo %s\n", module, goVersion)),
		write(filepath.Join(dir, "go.mod"), fmt.Sprintf(`module provider

go %s

require %s v0.0.0

// The SDK as it was when this was made. Without this line, and with a version
// above, it is the one that is published.
replace %[2]s => ./%[3]s
`, goVersion, module, moduleDir)))
}

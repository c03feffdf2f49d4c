package cli

import (
	"bytes"
	"fmt"
	"io/fs"
)

// walkFor fails with the first file of root that holds text.
func walkFor(root fs.FS, text string) error {
	return fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := fs.ReadFile(root, path)
		if err == nil && bytes.Contains(data, []byte(text)) {
			err = fmt.Errorf("%s holds %q", path, text)
		}
		return err
	})
}

package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/wire/vectors"
)

// schemaCommand hands out the author kit, which is a part of this program.
func (a *app) schemaCommand() *cobra.Command {
	openapi, list, dir := false, false, ""
	cmd := &cobra.Command{
		Use: "schema [NAME]", Short: "Print the schemas of the wire, or write the whole author kit",
		Long: `For who writes a sandbox provider in any language: the JSON Schemas of all
messages as one document, of one message by its name, the OpenAPI document of
the endpoints, or the whole kit with its golden vectors and two codecs that
check themselves against them. Needs no network.`,
		Example: `  checkfu schema --list
  checkfu schema ProvisionRequest
  checkfu schema --openapi > openapi.json
  checkfu schema --out kit && python3 kit/check.py`,
		RunE: func(cmd *cobra.Command, args []string) error {
			given := len(args)
			for _, name := range []string{"openapi", "list", "out"} {
				if cmd.Flags().Changed(name) {
					given++
				}
			}
			switch {
			case given > 1:
				return argument.Wrong("schema: expected one of NAME, --openapi, --list and --out")
			case openapi:
				return a.print(vectors.OpenAPI())
			case list:
				return a.print([]byte(strings.Join(vectors.Schemas(), "\n") + "\n"))
			case dir != "":
				return writeKit(dir)
			case len(args) == 0:
				return a.print(vectors.Bundle())
			}
			data, ok := vectors.Schema(args[0])
			if !ok {
				return argument.Unexpected("NAME", "a message (see checkfu schema --list)", args[0])
			}
			return a.print(data)
		},
	}
	cmd.Flags().BoolVar(&openapi, "openapi", false, "print the OpenAPI 3.1 document of the endpoints")
	cmd.Flags().BoolVar(&list, "list", false, "print the names of the messages")
	cmd.Flags().StringVar(&dir, "out", "", "write the whole kit into this directory, which is made, or is empty")
	return cmd
}

// writeKit writes the kit into dir, all of it or nothing. What is already there
// is never touched: it could be somebody's own provider.
func writeKit(dir string) (err error) {
	const expected = "a directory that can be made, or an empty one"
	made := false
	switch entries, read := os.ReadDir(dir); {
	case errors.Is(read, fs.ErrNotExist):
		if err := os.Mkdir(dir, 0o755); err != nil {
			return argument.Wrong("--out: expected %s, got %q (%v)", expected, dir, err)
		}
		made = true
	case read != nil:
		return argument.Wrong("--out: expected %s, got %q (%v)", expected, dir, read)
	case len(entries) > 0:
		return argument.Wrong("--out: expected %s, got %q, which holds %q", expected, dir, entries[0].Name())
	}
	if err = os.CopyFS(dir, vectors.Files()); err == nil {
		return nil
	}
	// It was empty, so all that lies there is ours.
	ours, _ := fs.ReadDir(vectors.Files(), ".")
	for _, e := range ours {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	if made {
		err = errors.Join(err, os.Remove(dir))
	}
	return err
}

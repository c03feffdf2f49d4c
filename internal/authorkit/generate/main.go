// Command generate writes the author kit into the directory that it is given:
// it replaces the generated files, removes those that are generated no more,
// and leaves what is written by hand. Run it by go generate ./wire/vectors.
package main

import (
	"log"
	"os"
	"path/filepath"

	"github.com/checkfu/checkfu/internal/authorkit"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: generate DIRECTORY")
	}
	dir := os.Args[1]
	for _, whole := range []string{"schema", "scenario"} {
		if err := os.RemoveAll(filepath.Join(dir, whole)); err != nil {
			log.Fatal(err)
		}
	}
	for name, data := range authorkit.Files() {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

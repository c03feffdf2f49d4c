package initbin

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
)

// TestBytes holds either way: what is embedded is an executable, or the error
// says how to make it.
func TestBytes(t *testing.T) {
	b, err := Bytes()
	if _, serr := os.Stat("bin/checkfu-init"); serr == nil {
		if err != nil || !bytes.HasPrefix(b, []byte("\x7fELF")) || len(b) > 2<<20 {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		return
	}
	if missing, ok := errors.AsType[*MissingError](err); !ok || !strings.Contains(missing.Error(), "go build") {
		t.Fatal(err)
	}
}

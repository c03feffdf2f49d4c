package cli

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/wire"
)

// maxSocketPath is what an address of a unix socket holds, less the name under
// which a listener is made before it is moved into its place.
const maxSocketPath = 88

// newToken draws a token of 260 bits.
func newToken() string { return rand.Text() + rand.Text() }

// readTokens reads a file of tokens, one a line. With create, one that is missing
// is made, readable for its owner alone. No message ever holds what it reads:
// it may be the wrong file, and that may be a secret too.
// Errors: *argument.Error.
func readTokens(path string, create bool) ([]string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO would wait for ever
	if create && errors.Is(err, os.ErrNotExist) {
		return makeToken(path)
	}
	if err != nil {
		return nil, argument.Unexpected("--token-file", "a file that can be read", path)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, argument.Unexpected("--token-file", "a regular file", path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, argument.Wrong("--token-file %s: expected a file that only its owner can read, got mode %04o: chmod 600 it", path, info.Mode().Perm())
	}
	const most = 4096
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil || len(data) > most {
		return nil, argument.Unexpected("--token-file", "a file of at most two lines", path)
	}
	return parseTokens("--token-file "+path, string(data))
}

func parseTokens(from, text string) ([]string, error) {
	tokens := strings.Fields(text)
	if _, err := wire.NewTokens(tokens...); err != nil || len(tokens) == 0 {
		return nil, argument.Wrong("%s: expected one token or two, a line each, of 32 to 512 characters of [A-Za-z0-9._~+/=-]", from)
	}
	return tokens, nil
}

// makeToken never overwrites: of two servers that begin at once, the second
// reads what the first has made.
func makeToken(path string) ([]string, error) {
	token := newToken()
	temporary, err := os.CreateTemp(filepath.Dir(path), ".token-") // mode 0600
	if err != nil {
		return nil, argument.Wrong("--token-file: expected a file that can be read, or made: %v", err)
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.WriteString(token + "\n")
	if err = errors.Join(err, temporary.Close()); err == nil {
		err = os.Link(temporary.Name(), path)
	}
	if errors.Is(err, os.ErrExist) {
		return readTokens(path, false)
	}
	if err != nil {
		return nil, argument.Wrong("--token-file: expected a file that can be read, or made: %v", err)
	}
	return []string{token}, nil
}

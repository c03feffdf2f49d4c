package cli

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/checkfu/checkfu/internal/cli/argument"
)

// modelPlace is what one gateway has on disk. Relays, which are other users, come
// as far as the socket of requests; what lies in own is the gateway's user's alone.
type modelPlace struct{ dir string }

func modelAt(state, name string) modelPlace {
	return modelPlace{filepath.Join(state, "model", name)}
}

func (p modelPlace) requests() string { return filepath.Join(p.dir, "s") }
func (p modelPlace) own() string      { return filepath.Join(p.dir, "own") }
func (p modelPlace) control() string  { return filepath.Join(p.dir, "own", "control") }
func (p modelPlace) log() string      { return filepath.Join(p.dir, "own", "log") }
func (p modelPlace) leases() string   { return filepath.Join(p.dir, "own", "leases") }

// make makes the directories.
func (p modelPlace) make() error {
	for _, d := range []struct {
		path string
		mode fs.FileMode
	}{{filepath.Dir(p.dir), 0o711}, {p.dir, 0o711}, {p.own(), 0o700}} {
		if err := os.Mkdir(d.path, d.mode); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err := os.Chmod(d.path, d.mode); err != nil { // the umask may have taken bits away
			return err
		}
	}
	return nil
}

// listen opens where relays come, and answers its address as a relay's
// configuration has it.
// Errors: *argument.Error, of an address that relays could not reach, or that
// others than this host's could.
func (p modelPlace) listen(at string) (net.Listener, string, error) {
	path, unixSocket := strings.CutPrefix(at, "unix:")
	if at == "" {
		path, unixSocket = p.requests(), true
	}
	if !unixSocket {
		address, err := netip.ParseAddrPort(at)
		if err != nil || !address.Addr().IsLoopback() || address.Addr().Is4In6() {
			return nil, "", argument.Unexpected("--listen", "unix:PATH or a literal loopback address and a port: requests are plain http", at)
		}
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(address))
		if err != nil {
			return nil, "", argument.Wrong("--listen: %v", err)
		}
		return l, l.Addr().String(), nil
	}
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.IndexByte(path, 0) >= 0 {
		return nil, "", argument.Unexpected("--listen", "a clean absolute path after unix:", at)
	}
	if err := passable(path); err != nil {
		return nil, "", err
	}
	l, err := listenFile("--listen", path, 0o666)
	return l, "unix:" + path, err
}

// passable refuses a path that a relay, which is nobody in particular on this
// host, does not come to.
func passable(path string) error {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return argument.Wrong("--listen: %v", err)
		}
		if info.Mode()&0o001 == 0 {
			return argument.Wrong("--listen: expected a socket that relays reach, which are users of their own, got %s below %s with mode %04o: chmod o+x it, or listen on 127.0.0.1:0", path, dir, info.Mode().Perm())
		}
		if dir == "/" {
			return nil
		}
	}
}

// maxSocketAddress is what an address of a unix socket holds.
const maxSocketAddress = 107

// listenFile listens on a socket file, in the place of one whose process is gone.
func listenFile(flag, path string, mode fs.FileMode) (net.Listener, error) {
	if len(path) > maxSocketAddress {
		return nil, argument.Wrong("%s: expected a path of a socket of at most %d bytes, got %d: %s", flag, maxSocketAddress, len(path), path)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		if c, err := net.Dial("unix", path); err == nil {
			c.Close()
			return nil, argument.Unexpected(flag, "a socket on which nobody listens", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, argument.Wrong("%s: %v", flag, err)
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

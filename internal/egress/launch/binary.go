package launch

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

//go:embed all:bin
var bin embed.FS

// Program is one of the binaries that this package holds, by its name.
type Program string

// The programs.
const (
	GuardProgram Program = "checkfu-guard"
	RelayProgram Program = "checkfu-relay"
)

// BuildCommand makes the binary that this package embeds. It is run in the
// module's root directory. The same sources and compiler give the same bytes:
// receipts name them by digest.
func (p Program) BuildCommand() string {
	return `CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags="-s -w" -o internal/egress/launch/bin/` + string(p) + " ./cmd/" + string(p)
}

// MissingError says that this program was built without one of its parts.
type MissingError struct{ Program Program }

func (e *MissingError) Error() string {
	return "this checkfu was built without its " + string(e.Program) + "; build it with: " + e.Program.BuildCommand() + " and build checkfu again"
}

// Built reports whether this program holds the binary; it reads nothing of it.
func (p Program) Built() bool {
	_, err := fs.Stat(bin, "bin/"+string(p))
	return err == nil
}

// Bytes returns the binary, a static executable for this architecture. The
// caller owns the copy. Errors: *MissingError.
func (p Program) Bytes() ([]byte, error) {
	b, err := bin.ReadFile("bin/" + string(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &MissingError{p}
	}
	return b, err
}

// Digest names the binary: "sha256:" and hexadecimal digits. Errors:
// *MissingError.
func (p Program) Digest() (string, error) {
	b, err := p.Bytes()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// executables are the binaries as files in memory, made when they are first
// used and kept while this process lives: all that it starts share their pages.
var executables struct {
	sync.Mutex
	files map[Program]*os.File
}

// executable is a file in memory that nobody can change. A failure is not kept:
// descriptors or memory may have been short for a moment.
func executable(p Program) (*os.File, error) {
	executables.Lock()
	defer executables.Unlock()
	if f := executables.files[p]; f != nil {
		return f, nil
	}
	b, err := p.Bytes()
	if err != nil {
		return nil, err
	}
	f, err := sealed(string(p), b, unix.MFD_EXEC)
	if err != nil {
		return nil, &StartError{Program: p, Err: err}
	}
	if executables.files == nil {
		executables.files = map[Program]*os.File{}
	}
	executables.files[p] = f
	return f, nil
}

// sealed makes a file in memory of b, to be read from its beginning.
func sealed(name string, b []byte, flags int) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|flags)
	if errors.Is(err, unix.EINVAL) && flags != 0 {
		// Before Linux 6.3 there was no flag, and every one could be executed.
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(b); err != nil {
		f.Close()
		return nil, err
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL); err != nil {
		f.Close()
		return nil, os.NewSyscallError("seal "+name, err)
	}
	if _, err := f.Seek(0, 0); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

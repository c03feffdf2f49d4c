package launch

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBytes holds either way: what is embedded is an executable, or the error
// says how to make it.
func TestBytes(t *testing.T) {
	for _, p := range []Program{GuardProgram, RelayProgram} {
		b, err := p.Bytes()
		digest, derr := p.Digest()
		if _, serr := os.Stat("bin/" + string(p)); serr == nil {
			const most = 8 << 20
			if err != nil || derr != nil || !bytes.HasPrefix(b, []byte("\x7fELF")) || len(b) > most || len(digest) != len("sha256:")+64 {
				t.Errorf("%s: %d bytes, %v, %s", p, len(b), err, digest)
			}
			continue
		}
		for _, err := range []error{err, derr} {
			if missing, ok := errors.AsType[*MissingError](err); !ok || !strings.Contains(missing.Error(), "go build") {
				t.Errorf("%s: %v", p, err)
			}
		}
	}
}

// What is executed and what is configured cannot be changed by anybody.
func TestSealed(t *testing.T) {
	f, err := sealed("test", []byte("abc"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := os.ReadFile("/proc/self/fd/" + itoa(f.Fd())); err != nil || string(got) != "abc" {
		t.Errorf("%q, %v", got, err)
	}
	for what, err := range map[string]error{
		"written":  second(f.WriteAt([]byte("x"), 0)),
		"grown":    f.Truncate(10),
		"shrunk":   f.Truncate(1),
		"unsealed": second(unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_EXEC)),
	} {
		if !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func second(_ int, err error) error { return err }

func itoa(fd uintptr) string { return strconv.Itoa(int(fd)) }

// What is held was built from the sources that lie here: a receipt that names a
// guard of other sources would be worth nothing.
func TestTheBinariesAreOfThisTree(t *testing.T) {
	for _, p := range []Program{GuardProgram, RelayProgram} {
		held, err := p.Digest()
		if err != nil {
			t.Logf("%s is not built", p)
			continue
		}
		out := filepath.Join(t.TempDir(), string(p))
		command := strings.Replace(p.BuildCommand(), "internal/egress/launch/bin/"+string(p), out, 1)
		build := exec.Command("sh", "-c", command)
		build.Dir = "../../.."
		if said, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v, %s", command, err, said)
		}
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(b); held != "sha256:"+hex.EncodeToString(sum[:]) {
			t.Errorf("%s is of other sources: run %s", p, p.BuildCommand())
		}
	}
}

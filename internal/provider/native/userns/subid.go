package userns

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"os/user"
	"strconv"
	"strings"
)

// The ids of machines, as they are called inside: Base and the Size after it.
// Inside, 0 is the user; no other id is mapped.
const (
	Base = 0x72000000
	Size = 65536
)

// usual is where the ids begin that user tools give out.
const usual = 100000

// block is a range of host ids that root gave to somebody.
type block struct{ first, count uint32 }

// maxSubid bounds what is read of one file: a line for each user of a large host.
const maxSubid = 8 << 20

// find returns the first block of at least Size ids that a file of the form of
// /etc/subuid (NAME-OR-UID:FIRST:COUNT, a line each) gives to one of names, and the
// first id that it gives to nobody. Lines of another form are not ours to judge.
func find(r io.Reader, names ...string) (found block, ok bool, free uint32) {
	free = usual
	lines := bufio.NewScanner(io.LimitReader(r, maxSubid))
	for lines.Scan() {
		f := strings.Split(strings.TrimSpace(lines.Text()), ":")
		if len(f) != 3 {
			continue
		}
		first, err1 := strconv.ParseUint(f[1], 10, 32)
		count, err2 := strconv.ParseUint(f[2], 10, 32)
		if err1 != nil || err2 != nil || first == 0 || count == 0 || first+count > math.MaxUint32 {
			continue // 0 is root, and the last id is nobody's
		}
		free = max(free, uint32(first+count))
		for _, name := range names {
			if f[0] == name && name != "" && count >= Size && !ok {
				found, ok = block{uint32(first), uint32(count)}, true
			}
		}
	}
	return found, ok, free
}

// blockOf looks a user's block up.
// Errors: *noBlock; the operating system's.
func blockOf(path, name, id string) (block, error) {
	f, err := os.Open(path)
	if err != nil && !os.IsNotExist(err) {
		return block{}, err
	}
	var found block
	ok, free := false, uint32(usual)
	if err == nil {
		found, ok, free = find(f, name, id)
		f.Close()
	}
	if !ok {
		return block{}, &noBlock{path: path, line: fmt.Sprintf("%s:%d:%d", name, free, Size)}
	}
	return found, nil
}

// noBlock is a file without a block for this user.
type noBlock struct{ path, line string }

func (e *noBlock) Error() string {
	return fmt.Sprintf("%s gives you no %d ids, which a machine's users need", e.path, Size)
}

// userName is this user's name, or the number where there is none.
func userName() string {
	if u, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil && u.Username != "" {
		return u.Username
	}
	return strconv.Itoa(os.Getuid())
}

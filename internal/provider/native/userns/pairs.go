package userns

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// keepPairs keeps pipes of which this process has both ends from the programs that it
// starts. gVisor makes one wherever it is linked, and each start on the way in would
// hand it on; there is a shell that knows no descriptor above 9 (Debian's, in the
// scripts of mmdebstrap). Who was given an end by somebody else has no other.
func keepPairs() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // it is a courtesy
	}
	seen := map[uint64]int{} // descriptor by inode
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		var st unix.Stat_t
		if err != nil || fd <= lifeFD || unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
			continue
		}
		if other, ok := seen[st.Ino]; ok {
			unix.CloseOnExec(other)
			unix.CloseOnExec(fd)
		}
		seen[st.Ino] = fd
	}
}

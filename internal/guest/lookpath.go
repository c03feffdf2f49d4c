package guest

import (
	"strings"

	"golang.org/x/sys/unix"
)

// lookPath checks the working directory and finds the program as execvp would:
// in PATH of the command's own environment when its name holds no slash.
func lookPath(r *startRequest) (string, *StartFailure) {
	var st unix.Stat_t
	if err := unix.Stat(r.dir, &st); err != nil {
		return "", failure(r.dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return "", failure(r.dir, unix.ENOTDIR)
	}
	if err := unix.Access(r.dir, unix.X_OK); err != nil {
		return "", failure(r.dir, err)
	}
	name := r.argv[0]
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := ""
	for _, e := range r.env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
			break
		}
	}
	found := unix.ENOENT
	for dir := range strings.SplitSeq(path, ":") {
		if path == "" {
			break
		}
		if dir == "" {
			dir = "."
		}
		candidate := dir + "/" + name
		asSeen := candidate
		if dir[0] != '/' {
			asSeen = r.dir + "/" + candidate
		}
		if unix.Stat(asSeen, &st) != nil {
			continue
		}
		if st.Mode&unix.S_IFMT == unix.S_IFREG && unix.Access(asSeen, unix.X_OK) == nil {
			return candidate, nil
		}
		found = unix.EACCES
	}
	return "", failure(name, found)
}

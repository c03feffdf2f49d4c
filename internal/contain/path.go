package contain

import "strings"

// Bounds of a path that Rel admits, in bytes.
const (
	MaximumPath = 4096
	MaximumName = 255
)

// Rel admits a path by its form alone and returns it unchanged: relative, no
// empty, "." or ".." component (so no "//" and no slash at the end), no NUL.
// Any other byte is admitted, newlines and invalid UTF-8 as well.
//
// It is not what contains anything: it gives each name one spelling, and the
// kernel does the rest. Every method of Root calls it.
// Bounds: MaximumPath bytes in all, MaximumName a component.
// Errors: ErrOutsideRoot for an absolute path and for "..", else ErrInvalidPath.
func Rel(unsafePath string) (string, error) {
	refuse := func(why Refusal, expected string) (string, error) {
		return "", &Error{Op: "admit", Path: clip(unsafePath), Refusal: why, Expected: expected}
	}
	switch {
	case unsafePath == "":
		return refuse(ErrInvalidPath, "a name")
	case unsafePath[0] == '/':
		return refuse(ErrOutsideRoot, "a relative path")
	case len(unsafePath) > MaximumPath:
		return refuse(ErrInvalidPath, "at most 4096 bytes")
	case strings.IndexByte(unsafePath, 0) >= 0:
		return refuse(ErrInvalidPath, "no NUL byte")
	}
	for rest, more := unsafePath, true; more; {
		var name string
		name, rest, more = strings.Cut(rest, "/")
		switch {
		case name == "..":
			return refuse(ErrOutsideRoot, `no ".." component`)
		case name == "" || name == ".":
			return refuse(ErrInvalidPath, `no empty or "." component`)
		case len(name) > MaximumName:
			return refuse(ErrInvalidPath, "components of at most 255 bytes")
		}
	}
	return unsafePath, nil
}

// clip keeps a hostile path from making a hostile log line.
func clip(path string) string {
	const most = 512
	if len(path) > most {
		return path[:most]
	}
	return path
}

// split returns the parent of an admitted path ("." for the root) and its last
// component.
func split(rel string) (parent, name string) {
	if i := strings.LastIndexByte(rel, '/'); i >= 0 {
		return rel[:i], rel[i+1:]
	}
	return ".", rel
}

// join is the inverse of split.
func join(parent, name string) string {
	if parent == "." {
		return name
	}
	return parent + "/" + name
}

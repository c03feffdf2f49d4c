package mount

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	maxPath    = 4095
	maxElement = 255
)

// admitted reports whether a path can stand in a mount: relative, without
// empty, "." or ".." elements, and within the kernel's own bounds.
func admitted(path string) bool {
	if path == "" || len(path) > maxPath || strings.IndexByte(path, 0) >= 0 {
		return false
	}
	for e := range strings.SplitSeq(path, "/") {
		if e == "" || e == "." || e == ".." || len(e) > maxElement {
			return false
		}
	}
	return true
}

// Reserved reports whether git refuses the path because an element of it is,
// or is on some file system, ".git". One such path makes git refuse a whole
// patch or tree, so they are found first: ".GIT", "git~1", ".git.", ".git ",
// ".git:stream", and ".g\u200cit" (HFS+ ignores some code points).
func Reserved(path string) bool {
	for e := range strings.SplitSeq(path, "/") {
		if len(e) >= 4 && dotGit(e) {
			return true
		}
	}
	return false
}

func dotGit(e string) bool {
	if i := strings.IndexByte(e, '\\'); i >= 0 && (dotGit(e[:i]) || dotGit(e[i+1:])) {
		return true
	}
	e, _, _ = strings.Cut(e, ":")
	e = strings.Map(func(r rune) rune {
		if r >= 0x200c && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x206a && r <= 0x206f || r == 0xfeff {
			return -1
		}
		return r
	}, e)
	e = strings.ToLower(strings.TrimRight(e, " ."))
	return e == ".git" || e == "git~1"
}

// gitmodules reports whether a link of this name is refused by git.
func gitmodules(path string) bool {
	base := strings.ToLower(strings.TrimRight(path[strings.LastIndexByte(path, '/')+1:], " ."))
	return strings.HasPrefix(base, ".gitmodules") || strings.HasPrefix(base, "gitmod~") || strings.HasPrefix(base, "gi7eba~")
}

// inGit reports whether the path is the mount's own .git or below it.
func inGit(path string) bool { return path == ".git" || strings.HasPrefix(path, ".git/") }

// covered returns the reason for which the path, or a directory above it, is
// in set, where "a/" and "a" both stand for a and all that is below it; or "".
func covered(set map[string]Reason, path string) Reason {
	if len(set) == 0 {
		return ""
	}
	for i := range len(path) + 1 {
		if i < len(path) && path[i] != '/' {
			continue
		}
		if r := set[path[:i]]; r != "" {
			return r
		}
		if r := set[path[:i]+"/"]; r != "" {
			return r
		}
	}
	return ""
}

// collision returns a path that occurs twice or has a file or link above it;
// a hostile tree object can hold both, and a link above a file would carry
// the staging of that file somewhere else.
func collision(files []File, links []Link) string {
	all := make(map[string]bool, len(files)+len(links))
	add := func(path string) bool {
		if all[path] {
			return false
		}
		all[path] = true
		return true
	}
	for _, f := range files {
		if !add(f.Path) {
			return f.Path
		}
	}
	for _, l := range links {
		if !add(l.Path) {
			return l.Path
		}
	}
	for path := range all {
		for i, c := range []byte(path) {
			if c == '/' && all[path[:i]] {
				return path
			}
		}
	}
	return ""
}

// printable makes hostile text fit for one line of a terminal.
func printable(s string) string {
	if len(s) > 512 {
		s = s[:512] + "..."
	}
	clean := utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) })
	if clean {
		return s
	}
	return strconv.Quote(s)
}

func sortPlan(p *Plan) {
	slices.SortFunc(p.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	slices.SortFunc(p.Links, func(a, b Link) int { return strings.Compare(a.Path, b.Path) })
	slices.SortStableFunc(p.Skips, func(a, b Skip) int { return strings.Compare(a.Path, b.Path) })
}

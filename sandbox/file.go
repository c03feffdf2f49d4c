package sandbox

import (
	"strconv"
	"strings"
)

// FileWrite is one file to write.
// Source: contract "The operations", row writeFile.
type FileWrite struct {
	Path       string
	Content    []byte
	Executable bool
	// Symlink makes a symbolic link with this target instead of a file. It may
	// be set only where the envelope says symlink_staging.
	Symlink string
}

// Validate checks the path and the size.
func (w FileWrite) Validate() error {
	if err := CheckPath("path", w.Path); err != nil {
		return err
	}
	if len(w.Content) > MaxFileBytes {
		return invalid("content", "at most "+strconv.Itoa(MaxFileBytes)+" bytes", strconv.Itoa(len(w.Content))+" bytes")
	}
	if w.Symlink != "" && (len(w.Content) > 0 || w.Executable) {
		return invalid("symlink", "a target without content and without executable", w.Symlink)
	}
	return checkTarget("symlink", w.Symlink)
}

// checkTarget holds the target of a symbolic link to what a kernel can store.
func checkTarget(field, target string) error {
	if len(target) >= MaxPathBytes || strings.IndexByte(target, 0) >= 0 {
		return invalid(field, "less than 4096 bytes without NUL", target)
	}
	return nil
}

// FileRead asks for one file below AllowedRoot, which the Runner derives from
// the instance's own mounts.
// Source: contract "Paths, mounts, and what the Runner admits first".
type FileRead struct {
	Path         string `json:"path"`
	AllowedRoot  string `json:"allowed_root"`
	MaximumBytes int64  `json:"maximum_bytes"`
}

// Validate checks both paths, that one is below the other, and the bound.
func (r FileRead) Validate() error {
	err := first(CheckPath("path", r.Path), CheckPath("allowed_root", r.AllowedRoot),
		checkInteger("maximum_bytes", r.MaximumBytes, 0, MaxFileBytes))
	if err == nil && (!Within(r.Path, r.AllowedRoot) || r.Path == r.AllowedRoot) {
		err = invalid("path", "a path below allowed_root "+r.AllowedRoot, r.Path)
	}
	return err
}

// FileMember is one member of a batch read.
type FileMember struct {
	Path         string `json:"path"`
	MaximumBytes int64  `json:"maximum_bytes"`
}

// FilesRead asks for a batch of files below one root. The aggregate must be
// the exact overflow-safe sum of the members' own bounds.
// Source: contract "Bounds", row readFiles aggregate output.
type FilesRead struct {
	AllowedRoot           string       `json:"allowed_root"`
	Files                 []FileMember `json:"files"`
	AggregateMaximumBytes int64        `json:"aggregate_maximum_bytes"`
}

// Validate checks every member and the sum.
func (r FilesRead) Validate() error {
	if len(r.Files) == 0 || len(r.Files) > MaxReadFiles {
		return invalid("files", "1 to "+strconv.Itoa(MaxReadFiles), strconv.Itoa(len(r.Files)))
	}
	var sum int64 // at most 1024 × 16 MiB: cannot overflow once each member is bounded
	for i, f := range r.Files {
		if err := prefix(at("files", i), (FileRead{f.Path, r.AllowedRoot, f.MaximumBytes}).Validate()); err != nil {
			return err
		}
		sum += f.MaximumBytes
	}
	if sum != r.AggregateMaximumBytes {
		return invalid("aggregate_maximum_bytes", "the sum of the members, "+strconv.FormatInt(sum, 10), strconv.FormatInt(r.AggregateMaximumBytes, 10))
	}
	return checkInteger("aggregate_maximum_bytes", r.AggregateMaximumBytes, 0, MaxReadFilesBytes)
}

// FileResult is the closed union of one file of a batch: content or a refusal.
type FileResult struct {
	Content []byte
	Refused Refusal // "" when Content is the file
}

// Validate checks the union against the member it answers.
func (r FileResult) Validate(m FileMember) error {
	if r.Refused != "" {
		if r.Content != nil {
			return invalid("content", "absent beside a refusal", strconv.Itoa(len(r.Content))+" bytes")
		}
		return checkMember("refused", r.Refused)
	}
	return checkInteger("content", int64(len(r.Content)), 0, m.MaximumBytes)
}

// Listing asks for the entries of one root.
// Source: contract "Bounds", row listDir.max_entries.
type Listing struct {
	Root       string `json:"root"`
	MaxEntries int64  `json:"max_entries"`
}

// Validate checks the root and the bound.
func (l Listing) Validate() error {
	return first(CheckPath("root", l.Root), checkInteger("max_entries", l.MaxEntries, 1, MaxListEntries))
}

// DirEntry is one regular file of listDir. Path is relative to the root.
// Source: contract "The operations", row listDir.
type DirEntry struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	Digest Digest `json:"digest"`
}

// Leaf is one leaf of listProjectDir. Path is relative to the root. Size,
// Digest and Executable are set for regular files only, Target for symbolic
// links only.
// Source: contract "The operations", row listProjectDir.
type Leaf struct {
	Path       string   `json:"path"`
	Type       LeafType `json:"type"`
	Size       int64    `json:"size,omitzero"`
	Digest     Digest   `json:"digest,omitzero"`
	Executable bool     `json:"executable,omitzero"`
	Target     string   `json:"target,omitzero"`
	// GuestObserved marks a special file that only the guest's own pass could
	// name; it is diagnostic.
	GuestObserved bool `json:"guest_observed,omitzero"`
}

// ProjectListing is a complete leaf enumeration. One that is not complete is a
// protocol failure.
type ProjectListing struct {
	Leaves   []Leaf `json:"leaves"`
	Complete bool   `json:"complete"`
}

// ValidateEntries checks a listDir result: bounded, ascending by path bytes
// without duplicates, every entry well formed.
func ValidateEntries(entries []DirEntry, max int64) error {
	if int64(len(entries)) > max {
		return invalid("entries", "at most "+strconv.FormatInt(max, 10), strconv.Itoa(len(entries)))
	}
	for i, e := range entries {
		err := first(checkRelative("path", e.Path), checkInteger("size", e.Size, 0, MaxInteger), checkDigest("digest", e.Digest))
		if err == nil && i > 0 && entries[i-1].Path >= e.Path {
			err = invalid("path", "ascending order", e.Path)
		}
		if err != nil {
			return prefix(at("entries", i), err)
		}
	}
	return nil
}

// Validate checks a listProjectDir result: complete, bounded, ascending by
// path bytes without duplicates, every leaf one of the seven types with the
// fields of its type and no others.
func (l ProjectListing) Validate(max int64) error {
	if !l.Complete {
		return invalid("complete", "true", "false")
	}
	if int64(len(l.Leaves)) > max {
		return invalid("leaves", "at most "+strconv.FormatInt(max, 10), strconv.Itoa(len(l.Leaves)))
	}
	for i, leaf := range l.Leaves {
		err := leaf.validate()
		if err == nil && i > 0 && l.Leaves[i-1].Path >= leaf.Path {
			err = invalid("path", "ascending order", leaf.Path)
		}
		if err != nil {
			return prefix(at("leaves", i), err)
		}
	}
	return nil
}

func (l Leaf) validate() error {
	if err := first(checkRelative("path", l.Path), checkMember("type", l.Type), checkInteger("size", l.Size, 0, MaxInteger)); err != nil {
		return err
	}
	if l.Type == LeafRegular {
		if l.Target != "" || l.GuestObserved {
			return invalid("type", "no target and no guest observation on a regular file", l.Target)
		}
		return checkDigest("digest", l.Digest)
	}
	if l.Digest != "" || l.Size != 0 || l.Executable {
		return invalid("digest", "absent on a special file", string(l.Digest))
	}
	if l.Target != "" && l.Type != LeafSymlink {
		return invalid("target", "absent unless type is symlink", l.Target)
	}
	return checkTarget("target", l.Target)
}

// checkRelative holds a listed path to the clean relative form.
func checkRelative(field, path string) error {
	if path == "" || path[0] == '/' {
		return invalid(field, "a relative path", path)
	}
	return CheckPath(field, "/"+path)
}

package sandbox

import (
	"slices"
	"strconv"
	"strings"
)

// Mount is one declared mount of an instance.
// Source: contract "Paths, mounts, and what the Runner admits first".
type Mount struct {
	MountPath string    `json:"mount_path"`
	Access    Access    `json:"access"`
	Kind      MountKind `json:"kind"`
}

// CheckPath holds a guest path to its one clean form: absolute, no empty, "."
// or ".." component, no trailing slash, no NUL, at most 4096 bytes in
// components of at most 255. Other bytes are free: names with newlines or
// invalid UTF-8 exist in real repositories.
// Errors: *Invalid naming field.
func CheckPath(field, path string) error {
	if len(path) < 2 || path[0] != '/' || len(path) > MaxPathBytes || strings.IndexByte(path, 0) >= 0 {
		return invalid(field, "an absolute path below / of at most 4096 bytes without NUL", path)
	}
	for name := range strings.SplitSeq(path[1:], "/") {
		if name == "" || name == "." || name == ".." || len(name) > MaxNameBytes {
			return invalid(field, "no empty, '.' or '..' component, each at most 255 bytes", path)
		}
	}
	return nil
}

// Within reports whether path is root or lies below it. Both must be clean. It
// compares text and admits only; containment itself is physical.
func Within(path, root string) bool {
	return path == root || strings.HasPrefix(path, root) && path[len(root)] == '/'
}

// ValidateMounts checks a mount plan: each mount well formed, none overlapping
// a reserved root in either direction, no two equal, at most 64. Nesting is
// allowed; the deepest mount owns a path.
// Source: contract "Paths, mounts, and what the Runner admits first".
func ValidateMounts(mounts []Mount) error {
	if len(mounts) > MaxMounts {
		return invalid("mounts", "at most "+strconv.Itoa(MaxMounts), strconv.Itoa(len(mounts)))
	}
	for i, m := range mounts {
		err := m.validate()
		if err == nil && slices.ContainsFunc(mounts[:i], func(o Mount) bool { return o.MountPath == m.MountPath }) {
			err = invalid("mount_path", "no duplicate", m.MountPath)
		}
		if err != nil {
			return prefix(at("mounts", i), err)
		}
	}
	return nil
}

func (m Mount) validate() error {
	if err := first(CheckPath("mount_path", m.MountPath), checkMember("access", m.Access), checkMember("kind", m.Kind)); err != nil {
		return err
	}
	for _, reserved := range reservedRoots {
		if Within(m.MountPath, reserved) || Within(reserved, m.MountPath) {
			return invalid("mount_path", "no overlap with the reserved "+reserved, m.MountPath)
		}
	}
	return nil
}

// OwningMount returns the deepest mount that holds path, or false.
func OwningMount(mounts []Mount, path string) (Mount, bool) {
	var owner Mount
	for _, m := range mounts {
		if Within(path, m.MountPath) && len(m.MountPath) > len(owner.MountPath) {
			owner = m
		}
	}
	return owner, owner.MountPath != ""
}

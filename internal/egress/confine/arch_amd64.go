package confine

import "golang.org/x/sys/unix"

// arch is the architecture whose calls the filter knows by number.
const (
	arch      = "amd64"
	auditArch = unix.AUDIT_ARCH_X86_64
)

package confine

import "golang.org/x/sys/unix"

// auditArch is the architecture whose calls the filter knows by number.
const auditArch = unix.AUDIT_ARCH_AARCH64

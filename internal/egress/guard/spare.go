package guard

import (
	"sync"

	"golang.org/x/sys/unix"
)

// spare is one descriptor kept for the moment when there is no other. With it a
// connection can still be taken, told so, and closed; without it its client
// would wait in the queue for a tunnel to end. Whoever takes a descriptor for
// longer than a moment has to leave this one: see held.
type spare struct {
	mu sync.Mutex
	fd int // 0 is none: it is standard input, or what stands for it
}

// held takes the descriptor, if it is not there, and reports whether it is now.
func (s *spare) held() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd == 0 {
		// A socket, because a guard that is locked up can open no file.
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return false
		}
		s.fd = fd
	}
	return true
}

// spend gives it up and reports whether it was there.
func (s *spare) spend() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd == 0 {
		return false
	}
	_ = unix.Close(s.fd)
	s.fd = 0
	return true
}

package guest

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// socket is one end of the stream. One goroutine may read while others, one at
// a time, write.
type socket struct {
	file *os.File
	raw  syscall.RawConn
}

// newSocket takes the file over.
func newSocket(file *os.File) (*socket, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &socket{file: file, raw: raw}, nil
}

// read takes one message whose body is at most limit bytes. With files false,
// attached descriptors are dropped by the kernel. On error the caller owns no
// descriptor.
func (s *socket) read(files bool, limit uint32) (h header, body []byte, fds []int, err error) {
	b := make([]byte, headerSize)
	n := 0
	if files {
		n, fds, err = s.readFiles(b)
	}
	if err == nil {
		_, err = io.ReadFull(s.file, b[n:])
	}
	if err == nil {
		h, err = parseHeader(b, limit)
	}
	if err == nil && int(h.files) != len(fds) {
		err = refuse("descriptors", "as many as the header says", len(fds))
	}
	if err == nil {
		body = make([]byte, h.size)
		_, err = io.ReadFull(s.file, body)
	}
	if err != nil {
		closeAll(fds)
		return header{}, nil, nil, err
	}
	return h, body, fds, nil
}

// readFiles reads the beginning of a message, with which the kernel delivers
// its descriptors.
func (s *socket) readFiles(b []byte) (n int, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*maxFiles))
	var oobn int
	var flags int
	if rerr := s.raw.Read(func(fd uintptr) bool {
		n, oobn, flags, _, err = unix.Recvmsg(int(fd), b, oob, unix.MSG_CMSG_CLOEXEC)
		return err != unix.EAGAIN && err != unix.EINTR
	}); rerr != nil {
		return 0, nil, rerr
	}
	if err != nil {
		return 0, nil, os.NewSyscallError("recvmsg", err)
	}
	if n == 0 {
		return 0, nil, io.EOF
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	for _, m := range messages {
		if got, rerr := unix.ParseUnixRights(&m); rerr == nil {
			fds = append(fds, got...)
		}
	}
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = refuse("descriptors", "at most 4", len(fds)+1)
	}
	if err != nil {
		closeAll(fds)
		return 0, nil, err
	}
	return n, fds, nil
}

// write sends one message; fds stay the caller's.
func (s *socket) write(b []byte, fds []int) error {
	if len(fds) == 0 {
		_, err := s.file.Write(b)
		return err
	}
	// The descriptors go with the first bytes; the rest may follow in pieces.
	var n int
	var err error
	rights := unix.UnixRights(fds...)
	if werr := s.raw.Write(func(fd uintptr) bool {
		n, err = unix.SendmsgN(int(fd), b[:headerSize], rights, nil, unix.MSG_NOSIGNAL)
		return err != unix.EAGAIN && err != unix.EINTR
	}); werr != nil {
		return werr
	}
	if err != nil {
		return os.NewSyscallError("sendmsg", err)
	}
	_, err = s.file.Write(b[n:])
	return err
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// Command hostile does, inside a machine, what a shell is too slow for or
// cannot do.
//
//	hostile swap DIR OUTSIDE COUNT   swap DIR/x between a directory and a link to OUTSIDE
//	hostile socket PATH              leave a unix socket at PATH
//	hostile deep DIR DEPTH           make DEPTH nested directories with a file in the last
//	hostile inherited                name the descriptors it was born with
//	hostile namespaced SEALED        try everything from a user namespace of its own
//	hostile cross FROM TO            try to carry FROM/file over into TO, and to climb out
//	hostile hold KIND COUNT          take COUNT of a thing that the kernel counts by user, or open files
//	hostile mapped PATH              map PATH, say so, wait for a line, and write through the map
//	hostile bomb                     start itself, for ever
//	hostile burrow PROGRAM ARG...    leave a program behind, as deep in namespaces as they go
//	hostile fill                     start as many processes as it may
//	hostile splice PATH              write to PATH what never comes
//	hostile immutable PATH           forbid everybody to change or remove PATH
package main

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

func main() {
	var err error
	switch os.Args[1] {
	case "swap":
		err = swap(os.Args[2], os.Args[3], number(os.Args[4]))
	case "socket":
		var l *net.UnixListener
		if l, err = net.ListenUnix("unix", &net.UnixAddr{Name: os.Args[2], Net: "unix"}); err == nil {
			l.SetUnlinkOnClose(false)
			err = l.Close()
		}
	case "deep":
		err = deep(os.Args[2], number(os.Args[3]))
	case "inherited":
		inherited()
	case "namespaced":
		namespaced(os.Args[2])
	case "inside":
		inside(os.Args[2])
	case "cross":
		cross(os.Args[2], os.Args[3])
	case "hold":
		hold(os.Args[2], number(os.Args[3]))
	case "mapped":
		err = mapped(os.Args[2])
	case "bomb":
		for {
			os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{})
		}
	case "burrow":
		err = burrow(os.Args[2:])
	case "fill":
		fill()
	case "splice":
		err = splice(os.Args[2])
	case "immutable":
		err = immutable(os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func swap(dir, outside string, count int) error {
	if err := os.Chdir(dir); err != nil {
		return err
	}
	if err := os.Mkdir("x", 0o755); err != nil {
		return err
	}
	if err := os.WriteFile("x/f", []byte("inside"), 0o644); err != nil {
		return err
	}
	if err := os.Symlink(outside, "link"); err != nil {
		return err
	}
	fmt.Println("ready")
	for range count {
		for _, move := range [][2]string{{"x", "real"}, {"link", "x"}, {"x", "link"}, {"real", "x"}} {
			if err := os.Rename(move[0], move[1]); err != nil {
				return err
			}
		}
	}
	return nil
}

func deep(dir string, depth int) error {
	if err := os.Chdir(dir); err != nil {
		return err
	}
	for range depth {
		if err := os.Mkdir("d", 0o755); err != nil {
			return err
		}
		if err := os.Chdir("d"); err != nil {
			return err
		}
	}
	return os.WriteFile("last", nil, 0o444)
}

func immutable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err
	}
	return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags)|unix.STATX_ATTR_IMMUTABLE)
}

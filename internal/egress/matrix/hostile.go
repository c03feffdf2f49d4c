package matrix

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// hostileName is the name under which this binary is a program of the workload.
const hostileName = "checkfu-egress-hostile"

// hostileMain does what its arguments say and prints what came of it.
func hostileMain(args []string) int {
	if len(args) == 0 {
		return 1
	}
	switch args[0] {
	case hostileWait:
		fmt.Println("here")
		io.Copy(io.Discard, os.Stdin)
		return 0
	case hostileLook:
		return look(args[1])
	case hostileDial:
		return dialAll(args[1:])
	}
	return 1
}

// dialAll names the links there are, and then whether addresses answer.
func dialAll(to []string) int {
	links, err := net.Interfaces()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for _, link := range links {
		fmt.Println("link", link.Name)
	}
	for _, a := range to {
		d := net.Dialer{Timeout: 5 * time.Second}
		conn, err := d.Dial("tcp", a)
		if err == nil {
			conn.Close()
			fmt.Println("reached", a)
			continue
		}
		fmt.Println("failed", a)
	}
	return 0
}

// inside runs this binary as a program of the workload, in namespaces of its own
// too where flags say so, and returns what it printed.
func (b *bench) inside(ctx context.Context, flags uintptr, to ...netip.AddrPort) (string, error) {
	words := []string{hostileDial}
	for _, a := range to {
		words = append(words, a.String())
	}
	var out []byte
	err := b.lab.Workload.Do(func() (err error) {
		cmd := exec.CommandContext(ctx, "/proc/self/exe", words...)
		cmd.Args[0] = hostileName
		cmd.Env = []string{}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		if flags&syscall.CLONE_NEWUSER != 0 {
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		}
		cmd.WaitDelay = time.Second
		out, err = cmd.Output()
		return err
	})
	if err != nil {
		return "", fmt.Errorf("run a program of the workload: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

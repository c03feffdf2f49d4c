package guest

import (
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
)

// OwnerFDEnv names the environment variable that holds the number of the
// inherited descriptor whose end-of-file means that the owner is gone.
const OwnerFDEnv = "CHECKFU_OWNER_FD"

const usage = `usage:
  checkfu-init init                  PID 1: reap, and end with the owner
  checkfu-init serve FD              PID 1: start commands for the host over FD
  checkfu-init seal                  forbid new namespaces in this user namespace
  checkfu-init specials ROOT LIMIT   print the special files below ROOT
`

// Main runs one mode of the guest init and returns its exit status: 0 done, 1
// the work failed, 2 the call was wrong.
func Main(args []string, stdout, stderr io.Writer) int {
	// One processor and an early collector: the process lives as long as the
	// machine, is counted in its memory and its process limit, and does little.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(20)
	if len(args) == 0 {
		io.WriteString(stderr, usage)
		return 2
	}
	var err error
	switch mode, rest := args[0], args[1:]; {
	case mode == "init" && len(rest) == 0:
		err = runInit()
	case mode == "serve" && len(rest) == 1:
		var fd int
		if fd, err = strconv.Atoi(rest[0]); err == nil {
			err = serve(fd)
		}
	case mode == "seal" && len(rest) == 0:
		err = seal()
	case mode == "specials" && len(rest) == 2:
		err = printSpecials(stdout, rest[0], rest[1])
	default:
		io.WriteString(stderr, usage)
		return 2
	}
	if err != nil {
		io.WriteString(stderr, "checkfu-init: "+err.Error()+"\n")
		return 1
	}
	return 0
}

// runInit is the "init" mode. It returns only if it could not begin or its
// owner is gone.
func runInit() error {
	if err := harden(); err != nil {
		return err
	}
	gone := make(chan struct{})
	if text := os.Getenv(OwnerFDEnv); text != "" {
		fd, err := strconv.Atoi(text)
		if err != nil || fd < 0 {
			return &WireError{Field: OwnerFDEnv, Want: "a descriptor number", Got: text}
		}
		owner := os.NewFile(uintptr(fd), "owner")
		go func() {
			io.Copy(io.Discard, owner)
			close(gone)
		}()
	}
	for children := childSignals(); ; {
		select {
		case <-children:
			for {
				if pid, _ := reapOne(); pid <= 0 {
					break
				}
			}
		case <-gone:
			return nil
		}
	}
}

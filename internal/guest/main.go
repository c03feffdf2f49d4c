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
  checkfu-init init [PORT=SOCKET...]      PID 1: reap, and end with the owner
  checkfu-init serve FD [PORT=SOCKET...]  PID 1: start commands for the host over FD
  checkfu-init seal                       forbid new namespaces in this user namespace
  checkfu-init specials ROOT LIMIT        print the special files below ROOT
  checkfu-init dial PORT                  pass standard streams on to PORT of the loopback address
  checkfu-init detach OUTPUT COMMAND [ARGUMENT...]
                                          have the nursery start COMMAND, and end
  checkfu-init nursery                    start what "detach" asks for; of init only
  checkfu-init pty ROWSxCOLUMNS [COMMAND [ARGUMENT...]]
                                          run COMMAND, or a shell, on a terminal; frames on standard input
A connection to PORT on the loopback address is passed on to SOCKET.
`

// Main runs one mode of the guest init and returns its exit status: 0 done, 1
// the work failed, 2 the call was wrong; that of "pty" is its command's.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// One processor and an early collector: the process lives as long as the
	// machine, is counted in its memory and its process limit, and does little.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(20)
	if len(args) == 0 {
		io.WriteString(stderr, usage)
		return 2
	}
	code := 0
	var err error
	switch mode, rest := args[0], args[1:]; {
	case mode == "init":
		err = runInit(rest)
	case mode == "serve" && len(rest) >= 1:
		var fd int
		if fd, err = strconv.Atoi(rest[0]); err == nil {
			err = serve(fd, rest[1:])
		}
	case mode == "seal" && len(rest) == 0:
		err = seal()
	case mode == "specials" && len(rest) == 2:
		err = printSpecials(stdout, rest[0], rest[1])
	case mode == "dial" && len(rest) == 1:
		err = runDial(rest[0], stdin, stdout, stderr)
	case mode == "detach" && len(rest) >= 2:
		code, err = runDetach(rest, stdout)
		if code > 1 {
			io.WriteString(stderr, "checkfu-init: "+err.Error()+"\n")
			return code
		}
	case mode == "nursery" && len(rest) == 0:
		err = runNursery()
	case mode == "pty" && len(rest) >= 1:
		code, err = runPty(rest, stdin, stdout)
	default:
		io.WriteString(stderr, usage)
		return 2
	}
	if err != nil {
		io.WriteString(stderr, "checkfu-init: "+err.Error()+"\n")
		return 1
	}
	return code
}

// runInit is the "init" mode. It returns only if it could not begin or its
// owner is gone.
func runInit(forwards []string) error {
	if err := harden(); err != nil {
		return err
	}
	if user := os.Getenv(NurseryEnv); user != "" {
		if err := startNursery(user); err != nil {
			return err
		}
	}
	if err := startForwards(forwards); err != nil {
		return err
	}
	if err := sayReady(); err != nil {
		return err
	}
	gone := make(chan struct{})
	owner, err := inherited(OwnerFDEnv)
	if err != nil {
		return err
	}
	if owner != nil {
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

// inherited is the descriptor that an environment variable names, nil where
// there is no such variable.
func inherited(name string) (*os.File, error) {
	text := os.Getenv(name)
	if text == "" {
		return nil, nil
	}
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 0 {
		return nil, &WireError{Field: name, Want: "a descriptor number", Got: text}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// sayReady tells whoever waits that the forwards listen, so that the first
// command of a machine finds them.
func sayReady() error {
	ready, err := inherited(ReadyFDEnv)
	if ready == nil {
		return err
	}
	_, err = ready.Write([]byte{1})
	ready.Close()
	return err
}

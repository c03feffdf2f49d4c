package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/egress/route"
)

// far is an expiry that no test reaches.
const far = "2100-01-01T00:00:00.000Z"

// holderChild asks for leases, says their tokens, and stays until it is killed or its
// standard input ends.
func holderChild() int {
	for _, lease := range os.Args[2:] {
		id, epoch, _ := strings.Cut(lease, "@")
		g, err := Operator{os.Args[1]}.Lease(context.Background(), Asked{RunID: "run_" + id, LeaseID: id, LeaseEpoch: int64(len(epoch)), ExpiresAt: far})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 3
		}
		fmt.Println(g.Token)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// holding starts a process that has leases, and returns their tokens.
func holding(t *testing.T, o Operator, leases ...string) (kill func(), tokens []string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{o.Socket}, leases...)...)
	cmd.Env, cmd.Stderr = append(os.Environ(), "CHECKFU_TEST_CHILD=holder"), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	kill = func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); _ = in.Close() }
	t.Cleanup(kill)
	lines := bufio.NewScanner(out)
	for range leases {
		if !lines.Scan() {
			t.Fatal("it has no lease: ", lines.Err())
		}
		tokens = append(tokens, lines.Text())
	}
	return kill, tokens
}

// Who asked for a lease and was killed has it no more, and no other's ends with it:
// not that of who lives, nor the newer epoch that another process has.
func TestALeaseEndsWithItsHolder(t *testing.T) {
	s, o := operated(t, scripted)
	lives := func(token string) bool {
		_, err := s.leases.Lookup(route.TokenDigest(token))
		if err != nil && !errors.Is(err, ErrNoLease) {
			t.Error(err)
		}
		return err == nil
	}
	killed, had := holding(t, o, "lea_a@1", "lea_b@1", "lea_c@1")
	other, has := holding(t, o, "lea_b@22", "lea_d@1")
	mine, err := o.Lease(t.Context(), Asked{RunID: "run_e", LeaseID: "lea_e", LeaseEpoch: 1, ExpiresAt: far})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.End(t.Context(), Ending{"lea_c", 1}); err != nil {
		t.Error(err)
	}
	if !lives(had[0]) || lives(had[1]) || lives(had[2]) || !lives(has[0]) || !lives(has[1]) || !lives(mine.Token) {
		t.Fatal("before anybody is killed")
	}
	over := func(token string) {
		t.Helper()
		waits, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for lives(token) {
			select {
			case <-tick.C:
			case <-waits.Done():
				t.Fatal("the lease of a process that was killed is good")
			}
		}
	}
	killed()
	over(had[0])
	if !lives(has[0]) || !lives(has[1]) || !lives(mine.Token) {
		t.Error("with it another's lease has ended")
	}
	other()
	over(has[0])
	over(has[1])
	if !lives(mine.Token) {
		t.Error("with it another's lease has ended")
	}
	if _, err := o.Lease(t.Context(), Asked{RunID: "run_a", LeaseID: "lea_a", LeaseEpoch: 1, ExpiresAt: far}); err == nil {
		t.Error("an epoch that has ended can be had again")
	}
}

// An older epoch that comes last, with its process or with none that can be told, takes
// nothing from who has the newer one.
func TestHold_AnOlderEpochThatComesLast(t *testing.T) {
	for _, known := range []bool{true, false} {
		cmd := exec.Command("/bin/cat")
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		pidfd := func(pid int) *os.File {
			t.Helper()
			fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
			if err != nil {
				t.Fatal(err)
			}
			return os.NewFile(uintptr(fd), "pidfd")
		}
		var h holders
		gone := make(chan struct{})
		lease := func(epoch int64) Lease {
			return Lease{LeaseID: "lea_a", LeaseEpoch: epoch, ExpiresAt: time.Now().Add(time.Hour)}
		}
		h.hold(lease(2), pidfd(cmd.Process.Pid), func() { close(gone) })
		var late *os.File
		if known {
			late = pidfd(os.Getpid())
		}
		h.hold(lease(1), late, func() { t.Error("the older epoch is somebody's") })
		if known && !errors.Is(late.Close(), os.ErrClosed) {
			t.Error("a pidfd that nobody waits for is open")
		}
		_ = in.Close()
		_ = cmd.Wait()
		select {
		case <-gone:
		case <-time.After(patience):
			t.Error("nobody waits for the process that has the newer epoch")
		}
		h.close()
	}
}

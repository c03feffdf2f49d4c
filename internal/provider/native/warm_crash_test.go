package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// warmSteps are what happens to a machine that is started ahead: until it waits, when
// it is claimed, and when it ends unclaimed.
var warmSteps = []struct {
	step  string
	named bool // it was somebody's instance, so a cleanup names it
}{
	{"ahead record", false}, {"ahead home", false}, {"ahead root", false}, {"ahead started ahead", false}, {"ahead waits", false},
	{"claim claimed", false}, {"claim enrolled", true}, {"claim provisioned", true}, {"claim started", true}, {"claim active", true},
	{"close stopped", false}, {"close reaped", false}, {"close unmounted", false},
}

// warmChild is a provider with a pool that dies by SIGKILL at one step of one phase.
func warmChild(wanted string) {
	var phase atomic.Value
	phase.Store("")
	reached := func(step string) {
		if step == "ahead" {
			phase.Store("ahead ")
		}
		if phase.Load().(string)+step == wanted {
			fmt.Println("reached " + wanted)
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	p := childProvider(reached)
	p.opt.Warm = Warm{Each: 1, Quiet: time.Nanosecond}
	childFailed(p.openPool())
	ctx := context.Background()
	done := p.pool.work()
	h, err := p.Provision(ctx, request(p, work))
	childFailed(err)
	childFailed(p.Destroy(ctx, h.Value.InstanceID))
	done()
	for deadline := time.Now().Add(time.Minute); p.Waiting() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			childFailed(errors.New("no machine waits"))
		}
	}
	reached("waits")
	if strings.HasPrefix(wanted, "close ") {
		phase.Store("close ")
		childFailed(p.Close())
		os.Exit(4)
	}
	p.pool.work() // no other one: the steps are those of the claim
	phase.Store("claim ")
	h, err = p.Provision(ctx, request(p, work))
	childFailed(err)
	_, err = p.Activate(ctx, h.Value.InstanceID)
	childFailed(err)
	os.Exit(4) // the step was never reached
}

// The owner is killed at each step of a machine that is started ahead. A cleanup
// removes all of it, and names it only where it was somebody's.
func TestCleanup_AfterACrashOfAMachineThatWaits(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		for i, test := range warmSteps {
			if p.opt.Driver.Name() == "runsc" && i%3 != 0 { // the driver's part of it is the same at its neighbours
				continue
			}
			t.Run(test.step, func(t *testing.T) {
				crashWarm(t, p, test.step)
				if len(census(t, p)) == 0 {
					t.Error("nothing was left by the crash, so the sweep proves nothing")
				}
				if swept := sweep(t, p); len(swept.InstanceIDs) > 0 != test.named {
					t.Errorf("swept %v", swept.InstanceIDs)
				}
				nothingLeft(t, p)
			})
		}
		t.Run("reclaimed", func(t *testing.T) {
			crashWarm(t, p, "ahead waits")
			list, err := p.List(t.Context())
			if err != nil || len(list) != 1 || !list[0].Waits || list[0].Owned {
				t.Errorf("%+v, %v", list, err)
			}
			swept, err := p.Reclaim(t.Context(), sandbox.At(time.Now().Add(time.Second)))
			buryAdopted()
			if err != nil || len(swept.InstanceIDs) != 1 {
				t.Errorf("swept %v, %v", swept, err)
			}
			nothingLeft(t, p)
		})
	})
}

func crashWarm(t *testing.T, p *Provider, step string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self)
	child.Env = childEnv(p, "CHECKFU_TEST_WARM="+step)
	out, err := child.CombinedOutput()
	status, ok := child.ProcessState.Sys().(syscall.WaitStatus)
	if err == nil || !ok || status.Signal() != syscall.SIGKILL || !strings.Contains(string(out), "reached "+step) {
		t.Fatalf("the child did not die at %s: %v\n%s", step, err, out)
	}
}

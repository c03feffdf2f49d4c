package confine

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// threads that exist before a process is confined, each with a channel of what
// it is to do.
var early []chan func()

const earlyThreads = 30

func spread() {
	for range earlyThreads {
		work := make(chan func())
		early = append(early, work)
		ready := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(ready)
			for f := range work {
				f()
			}
		}()
		<-ready
	}
}

// everyThreadReads answers nil where every thread, early or new, may read; an
// error where none may; and it panics where some may.
func everyThreadReads(path string) error {
	var mu sync.Mutex
	var all sync.WaitGroup
	var refused, done int
	var last error
	read := func() {
		defer all.Done()
		_, err := os.ReadFile(path)
		mu.Lock()
		defer mu.Unlock()
		if done++; err != nil {
			refused++
			last = err
		}
	}
	for _, work := range early {
		all.Add(1)
		work <- read
	}
	for range earlyThreads {
		all.Add(1)
		go func() {
			runtime.LockOSThread() // the thread ends with this
			read()
		}()
	}
	all.Wait()
	if refused != 0 && refused != done {
		panic(fmt.Sprintf("%d of %d threads may read", done-refused, done))
	}
	return last
}

// The kernel's own word, for each thread.
func TestEveryThreadIsConfined(t *testing.T) {
	for _, lifted := range []bool{false, true} {
		o := order{Do: "every thread reads", With: "/", Waits: true}
		if lifted {
			o.Without = without("core files no_new_privs identity landlock seccomp")
		}
		r := begin(t, o, nil)
		all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", r.Process.Pid))
		if err != nil || len(all) < earlyThreads {
			t.Fatalf("%d threads, %v", len(all), err)
		}
		want := map[string]string{
			"NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": "1", "Groups": "",
			"Uid": "65519\t65519\t65519\t65519", "Gid": "65519\t65519\t65519\t65519",
			"CapInh": zero, "CapPrm": zero, "CapEff": zero, "CapBnd": zero, "CapAmb": zero,
		}
		wrong := 0
		for _, path := range all {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				key, value, _ := strings.Cut(line, ":")
				if w, ok := want[key]; ok && strings.TrimSpace(value) != w {
					wrong++
					if !lifted {
						t.Errorf("%s: %s", path, line)
					}
				}
			}
		}
		if lifted && wrong < 6*len(all) {
			t.Errorf("the check does not bite: %d wrong of %d threads", wrong, len(all))
		}
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", r.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Join(strings.Fields(string(limits)), " ")
		if has := contains(fields, "Max core file size 1 1 bytes", "Max open files 128 128 files"); has == lifted {
			t.Errorf("lifted %v: %s", lifted, limits)
		}
	}
}

const zero = "0000000000000000"

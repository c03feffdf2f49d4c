package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/checkfu/checkfu/internal/egress/canary"
	"github.com/checkfu/checkfu/internal/egress/route"
)

// children are the process ids of the children of one.
func children(parent int) []int {
	var all []int
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				all = append(all, pid)
			}
		}
	}
	return all
}

// processes are a run and all that belongs to it: its descendants, and what is in
// the machine's cgroups, wherever that was re-parented to.
func processes(t *testing.T, root int) map[int]string {
	t.Helper()
	found := map[int]string{}
	var add func(pid int)
	add = func(pid int) {
		if found[pid] != "" {
			return
		}
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || len(line) == 0 { // gone, or a zombie
			return
		}
		found[pid] = strings.ReplaceAll(strings.TrimRight(string(line), "\x00"), "\x00", " ")
		for _, child := range children(pid) {
			add(child)
		}
	}
	add(root)
	instances, _ := filepath.Glob(filepath.Join(state, "native-*", "instances", "*"))
	if len(instances) != 1 {
		t.Errorf("machines: %v", instances)
	}
	groups, _ := filepath.Glob("/proc/[0-9]*/cgroup")
	for _, file := range groups {
		text, _ := os.ReadFile(file)
		for _, instance := range instances {
			if strings.Contains(string(text), filepath.Base(instance)) {
				pid, _ := strconv.Atoi(strings.Split(file, "/")[2])
				add(pid)
			}
		}
	}
	return found
}

// searched looks for the key in every process of a run, and in the gateway; and for
// the run's token, which shows that the search reaches into the sandbox.
func searched(t *testing.T, m *models, root int, guarded bool) {
	t.Helper()
	count := func(pid int, secret string) (canary.Hits, bool) {
		hits, err := canary.Scan(bounded(t), pid, []byte(secret))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			return hits, false // it ended meanwhile
		}
		if err != nil {
			t.Errorf("process %d: %v", pid, err)
		}
		return hits, true
	}
	if h, _ := count(m.process.Process.Pid, m.key); h.Memory == 0 || h.Environ+h.Cmdline+h.Names+h.Files != 0 {
		t.Errorf("the gateway: %+v", h)
	}
	all := processes(t, root)
	seen := map[string]bool{}
	for pid, line := range all {
		h, there := count(pid, m.key)
		if there && (h.Total() != 0 || h.Scanned == 0) {
			t.Errorf("%d %s: %+v", pid, line, h)
		}
		for _, name := range []string{"checkfu-relay ", "checkfu-guard "} {
			seen[name] = seen[name] || strings.HasPrefix(line, name)
		}
	}
	if !seen["checkfu-relay "] || seen["checkfu-guard "] != guarded || len(all) < 4 {
		t.Errorf("not all of the run was searched: %v", all)
	}
	// The sandbox's own processes hold the run's token, whatever it is.
	for pid, line := range all {
		if strings.HasPrefix(line, "/agent/agent ") || strings.Contains(line, " boot ") {
			if h, there := count(pid, "ANTHROPIC_API_KEY="+route.TokenPrefix); there && h.Memory > 0 {
				return
			}
		}
	}
	t.Errorf("the token was found nowhere, so the search does not reach into the sandbox: %v", all)
}

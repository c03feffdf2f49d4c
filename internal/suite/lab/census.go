package lab

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Census names what this host has alive of the state directory dir: instance
// directories, mounts, and processes other than this one. What goes while it is
// looked at is not named, nor what belongs to one of others, the ids of
// instances.
func Census(dir string, others ...string) []string {
	found := []string{}
	theirs := func(text string) bool {
		return slices.ContainsFunc(others, func(id string) bool { return strings.Contains(text, id) })
	}
	instances, _ := filepath.Glob(filepath.Join(dir, "*", "instances", "*"))
	found = append(found, slices.DeleteFunc(instances, theirs)...)
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") && strings.Contains(fields[4], "/instances/") && !theirs(fields[4]) {
			found = append(found, "mount "+fields[4])
		}
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range processes {
		pid := filepath.Base(filepath.Dir(file))
		if pid == strconv.Itoa(os.Getpid()) {
			continue
		}
		text, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(text), dir+"/") && !theirs(string(text)) {
			found = append(found, "process "+pid)
		}
	}
	return found
}

package guest

import (
	"os"
	"strings"
)

// A machine may have this many inotify instances and watches. The kernel adds
// them to those of the host's root, who has 128 instances unless told
// otherwise: one machine must not be able to take them all.
const inotifyInstances, inotifyWatches = "16", "32768"

// seal is the "seal" mode: run once in a machine's user namespace, while it
// still has the power to, it takes from everything in that namespace the
// ability to make namespaces of any kind, and the greater part of what the
// kernel would let it take from other machines. No later process of the machine
// can write the limits back: they hold no capability there.
func seal() error {
	limits := map[string]string{
		"inotify_instances": inotifyInstances, "inotify_watches": inotifyWatches, "fanotify_groups": "0", "fanotify_marks": "0",
	}
	for _, kind := range []string{"user", "pid", "mnt", "net", "ipc", "uts", "cgroup", "time"} {
		limits[kind+"_namespaces"] = "0"
	}
	for name, limit := range limits {
		err := os.WriteFile("/proc/sys/user/max_"+name, []byte(limit), 0)
		// Kernels without the feature do not have its limit.
		optional := name == "time_namespaces" || strings.Contains(name, "notify")
		if err != nil && !(optional && os.IsNotExist(err)) {
			return err
		}
	}
	return nil
}

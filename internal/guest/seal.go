package guest

import "os"

// seal is the "seal" mode: run once in a machine's user namespace, while it
// still has the power to, it takes from everything in that namespace the
// ability to make namespaces of any kind. No later process of the machine can
// write the limits back: they hold no capability there.
func seal() error {
	for _, kind := range []string{"user", "pid", "mnt", "net", "ipc", "uts", "cgroup", "time"} {
		path := "/proc/sys/user/max_" + kind + "_namespaces"
		if err := os.WriteFile(path, []byte("0"), 0); err != nil && !(kind == "time" && os.IsNotExist(err)) {
			return err
		}
	}
	return nil
}

package all

import (
	"path/filepath"

	"github.com/checkfu/checkfu/internal/egress/launch"
	"github.com/checkfu/checkfu/internal/provider/native/gvisor"
	"github.com/checkfu/checkfu/internal/provider/native/userns"
)

// reachable is where a provider finds its state directory: an ordinary user's lies in
// a home that machines' users cannot pass through, and is bound to where they can.
func reachable(name, dir string) (string, error) {
	if name != NativeRootless || !userns.Inside() {
		return dir, nil
	}
	return userns.Bind(dir)
}

// sentries are the options of gVisor's driver for a provider. What all machines of an
// ordinary user's command have in common ends with that command.
func sentries(name, dir string) gvisor.Options {
	o := gvisor.Options{Root: sentryRoot(dir), CgroupParent: cgroupParent(dir), Rootless: name == NativeRootless}
	if o.Rootless && userns.Inside() {
		o.Root = filepath.Join(userns.Dir, "runsc")
	}
	return o
}

// launcher starts what becomes a user that nobody else is. Where this process is in an
// ordinary user's namespaces there are no ids but that user's and the machines': it is
// one of those, which no machine's process becomes, for none holds a capability.
func launcher(uid int) launch.Launcher {
	if userns.Inside() {
		return launch.Launcher{UID: userns.Base + uid}
	}
	return launch.Launcher{}
}

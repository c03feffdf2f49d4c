// Package userns lets an ordinary user be root among ids of their own: this program
// starts itself again in a user, a mount and a process namespace that belong to the
// user, in which everything that the native provider does as root works but what the
// host keeps for its own root (cgroups, loop images, links of the network).
//
// Two starts are needed, because a process loses its powers where it executes a
// program before anybody has mapped its user:
//
//	user's process  clones gate into the namespaces, has newuidmap and newgidmap map
//	                its ids, opens the gate, passes signals on, waits
//	gate            waits for that, then executes this program once more
//	inside          is process 1, user 0 inside and the user themselves outside; has
//	                a /proc of the namespaces and a private directory, Dir
//
// The ids of a machine, Base and the Size after it, are a range that root gave the
// user in /etc/subuid and /etc/subgid. Without one nothing is offered: a machine's
// workload would have to be the user.
//
// What is inside ends with process 1, whatever becomes of it, and process 1 ends with
// the user's process: no process and no mount can be left.
//
// Trusts: newuidmap and newgidmap of PATH, the user. Nothing hostile is read here.
// Errors: *EnterError, and what a host lacks as []machine.Lack.
// Concurrency: Dispatch is called first in main; the rest may be called from any
// goroutine.
// Source: concept "The enforcement statement".
package userns

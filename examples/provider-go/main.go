// Program provider-go is a sandbox provider as a stranger would write it: a
// sandbox.Provider over ordinary processes in namespaces of their own, served by
// package wire/server.
//
// CHECKFU_LISTEN says where (unix:PATH, or HOST:PORT of this machine),
// CHECKFU_TOKEN who may call, CHECKFU_STATE where its instances lie, and its
// snapshots and its journal where it has any. SIGTERM ends it and all instances.
// Where the machine gives no namespaces it says so and ends with 4, before it
// listens.
//
// Trusts: the kernel, and the Runner that holds the token. Does not trust: the
// workload, and every name and byte that it leaves.
// Source: contract "The operations"; docs/wire.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/checkfu/checkfu/wire/server"
	"github.com/checkfu/checkfu/wire/server/logstore"
)

const (
	noNamespaces = 4
	// ownMounts marks a program that has a mount namespace of its own.
	ownMounts = "CHECKFU_OWN_MOUNTS"
)

func main() {
	switch os.Args[0] {
	case stageMachine:
		machine()
	case stageCommand:
		command()
	default:
		os.Exit(provide())
	}
}

func provide() int {
	token, address := os.Getenv("CHECKFU_TOKEN"), os.Getenv("CHECKFU_LISTEN")
	if len(token) < 32 || len(token) > 512 || address == "" {
		return say(1, errors.New("set CHECKFU_LISTEN to unix:PATH or HOST:PORT and CHECKFU_TOKEN to 32 to 512 characters"))
	}
	if !rootless && os.Getenv(ownMounts) == "" {
		if err := enterOwnMounts(); err != nil {
			return say(noNamespaces, lacking(err))
		}
	}
	os.Unsetenv("CHECKFU_TOKEN")
	syscall.Umask(0o022)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	p, err := open(os.Getenv("CHECKFU_STATE"))
	if err != nil {
		return say(1, err)
	}
	if err := p.probe(ctx); err != nil {
		return say(noNamespaces, errors.Join(lacking(err), p.close()))
	}
	return say(1, errors.Join(p.serve(ctx, address, token), p.close()))
}

// serve returns when ctx is done and every call has ended.
func (p *provider) serve(ctx context.Context, address, token string) error {
	o := server.Options{Provider: p, Tokens: []string{token}, Log: func(err error) { say(0, err) }}
	if durable {
		// Snapshots outlive this process. So must what is known of their operations:
		// who took them, and under which id.
		o.Journal = logstore.At(filepath.Join(p.state, "journal"))
	}
	s, err := server.New(o)
	if err != nil {
		return err
	}
	l, err := server.Listen(ctx, address)
	if err != nil {
		return errors.Join(err, s.Close(ctx))
	}
	return server.Serve(ctx, l, s, nil)
}

// say prints an error, if there is one, and returns the exit code.
func say(code int, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	return code
}

func lacking(err error) error {
	return fmt.Errorf("this machine gives no namespaces of their own to commands (%w); nothing runs without them", err)
}

// enterOwnMounts starts this program again in a mount namespace, in which the
// disks of instances are mounted: they go with the program, however it ends.
func enterOwnMounts() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the namespace is this thread's, and exec keeps it
	if err := syscall.Unshare(syscall.CLONE_NEWNS); err != nil {
		return err
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	return syscall.Exec(self, os.Args, append(os.Environ(), ownMounts+"=1"))
}

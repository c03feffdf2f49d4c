package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// peer is another way to run a program somewhere else.
type peer struct {
	name string
	dir  string // where the shared directory lies for its programs
	argv func(program ...string) []string
}

// peers are docker exec and ssh, of which a note says why they are not there.
// dir is a directory of the host that their programs can read.
func (w *world) peers(ctx context.Context, dir string) (all []peer, end func()) {
	var ends []func() error
	for _, start := range []func(context.Context, string) (peer, func() error, error){w.dockerExec, w.ssh} {
		p, close, err := start(ctx, dir)
		if err != nil {
			w.rep.note("not in the table: %v", err)
			continue
		}
		all, ends = append(all, p), append(ends, close)
	}
	return all, func() {
		for _, close := range ends {
			if err := close(); err != nil {
				w.rep.note("%v", err)
			}
		}
	}
}

// dockerExec is a running container of a daemon of our own.
func (w *world) dockerExec(ctx context.Context, dir string) (peer, func() error, error) {
	d, err := startDocker(ctx, w)
	if err != nil {
		return peer{}, nil, fmt.Errorf("docker exec: %w", err)
	}
	const name, inside = "bench-exec", "/shared"
	run := slices.Insert(d.run("/bin/sleep", "100000"), 4, "--detach", "--name="+name, "--volume="+dir+":"+inside+":ro")
	if err := shQuiet(ctx, run...); err != nil {
		return peer{}, nil, errors.Join(fmt.Errorf("docker exec: %w", err), d.close())
	}
	return peer{"docker exec", inside, func(program ...string) []string {
			return append([]string{"docker", "--host", d.host, "exec", "--interactive", name}, program...)
		}}, func() error {
			err := shQuiet(context.WithoutCancel(ctx), "docker", "--host", d.host, "kill", name)
			return errors.Join(err, d.close())
		}, nil
}

// ssh is a daemon of our own on loopback: its keys, configuration and port are
// the bench's, and what it logs.
func (w *world) ssh(ctx context.Context, dir string) (_ peer, _ func() error, err error) {
	sshd, err := exec.LookPath("/usr/sbin/sshd")
	if err == nil {
		_, err = exec.LookPath("ssh")
	}
	if err != nil {
		return peer{}, nil, errors.New("ssh: skipped: no /usr/sbin/sshd or no ssh (Debian packages openssh-server, openssh-client)")
	}
	home := filepath.Join(w.dir, "ssh")
	if err := os.Mkdir(home, 0o700); err != nil {
		return peer{}, nil, err
	}
	foreign := ""
	if _, err := os.Lstat("/run/sshd"); errors.Is(err, os.ErrNotExist) {
		foreign = "/run/sshd" // where it locks itself in; it takes no other place
		if err := os.Mkdir(foreign, 0o755); err != nil {
			return peer{}, nil, err
		}
	}
	clean := func() error {
		if foreign != "" {
			os.Remove(foreign)
		}
		return os.RemoveAll(home)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("ssh: %w", err), clean())
		}
	}()
	in := func(name string) string { return filepath.Join(home, name) }
	for _, key := range []string{"host", "user"} {
		if err := sh(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", in(key)); err != nil {
			return peer{}, nil, err
		}
	}
	// Nothing else can be told to take a port that is free and to say which.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return peer{}, nil, err
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	config := "ListenAddress 127.0.0.1:" + port + "\nHostKey " + in("host") + "\nAuthorizedKeysFile " + in("user.pub") +
		"\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nPidFile none\n"
	if err := os.WriteFile(in("config"), []byte(config), 0o600); err != nil {
		return peer{}, nil, err
	}
	daemon := exec.Command(sshd, "-D", "-f", in("config"), "-E", in("log"))
	daemon.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := daemon.Start(); err != nil {
		return peer{}, nil, err
	}
	ended := make(chan struct{})
	go func() { daemon.Wait(); close(ended) }()
	stop := func() error {
		daemon.Process.Signal(unix.SIGTERM)
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			daemon.Process.Kill()
			<-ended
		}
		reapOrphans()
		return clean()
	}
	p := peer{"ssh", dir, func(program ...string) []string {
		return []string{"ssh", "-F", "none", "-i", in("user"), "-p", port, "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
			"-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "root@127.0.0.1", shellLine(append([]string{"busybox"}, applet(program)...))}
	}}
	ready, cancel := context.WithTimeout(ctx, commandBound)
	defer cancel()
	for {
		err := sh(ready, p.argv("/bin/true")...)
		if err == nil {
			return p, stop, nil
		}
		select {
		case <-ended:
			text, _ := os.ReadFile(in("log"))
			return peer{}, nil, fmt.Errorf("sshd ended: %s", text)
		case <-ready.Done():
			stop()
			return peer{}, nil, err
		case <-time.After(50 * time.Millisecond): // it has no event for being ready
		}
	}
}

// applet is a program of the image as an applet of the same busybox outside.
func applet(program []string) []string {
	return append([]string{filepath.Base(program[0])}, program[1:]...)
}

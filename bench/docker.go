package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// docker is a daemon of our own, with all its state in the bench's directory.
type docker struct {
	w       *world
	daemon  *exec.Cmd
	ended   chan struct{}
	host    string
	image   string
	foreign []string // directories outside our own that were not there before
}

// startDocker starts dockerd and loads the image. An error that says what is
// missing is no failure of the bench.
func startDocker(ctx context.Context, w *world) (*docker, error) {
	for _, program := range []string{"dockerd", "docker", "containerd"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("skipped: no %s in PATH (Debian package docker.io)", program)
		}
	}
	dir := filepath.Join(w.dir, "docker")
	if err := os.Mkdir(dir, 0o711); err != nil {
		return nil, err
	}
	d := &docker{w: w, host: "unix://" + filepath.Join(dir, "s"), ended: make(chan struct{})}
	// dockerd keeps a key in /etc/docker, and the shims their sockets below
	// /run; neither takes another place for it.
	for _, dir := range []string{"/etc/docker", "/run/docker", "/run/containerd"} {
		if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
			d.foreign = append(d.foreign, dir)
		}
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	d.daemon = exec.Command("dockerd", "--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"),
		"--pidfile", filepath.Join(dir, "pid"), "--host", d.host, "--iptables=false", "--bridge=none", "--ip-forward=false", "--ip-masq=false",
		"--cgroup-parent", "/"+w.parent+"/docker", "--exec-opt", "native.cgroupdriver=cgroupfs")
	d.daemon.Stdout, d.daemon.Stderr = log, log
	// Its signals are ours to send.
	d.daemon.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := d.daemon.Start(); err != nil {
		return nil, err
	}
	go func() {
		d.daemon.Wait()
		close(d.ended)
	}()
	if err := d.load(ctx); err != nil {
		text, _ := os.ReadFile(log.Name())
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		return nil, errors.Join(fmt.Errorf("skipped: %w; dockerd: %s", err, lines[len(lines)-1]), d.close())
	}
	return d, nil
}

// load waits for the daemon and gives it the image.
func (d *docker) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, commandBound)
	defer cancel()
	for {
		err := sh(ctx, "docker", "--host", d.host, "version")
		if err == nil {
			break
		}
		select {
		case <-d.ended:
			return errors.New("dockerd ended")
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond): // it has no event for being ready
		}
	}
	var said bytes.Buffer
	if err := shInto(ctx, &said, "", "docker", "--host", d.host, "load", "--quiet", "--input", d.w.tar); err != nil {
		return err
	}
	d.image = "busybox:test"
	return nil
}

// run is the command of one container with the limits and privileges of ours.
func (d *docker) run(argv ...string) []string {
	return append([]string{"docker", "--host", d.host, "run", "--rm", "--network=none", "--read-only", "--user=10001:10001",
		"--cap-drop=ALL", "--security-opt=no-new-privileges", "--memory=768m", "--cpus=2", "--pids-limit=138",
		"--tmpfs=/tmp", d.image}, argv...)
}

// close ends the daemon by its pid, and its containerd with it.
func (d *docker) close() error {
	d.daemon.Process.Signal(unix.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(20 * time.Second):
		d.daemon.Process.Kill()
		<-d.ended
	}
	reapOrphans()
	for _, dir := range d.foreign {
		os.Remove(filepath.Join(dir, "key.json"))
		removeEmpty(dir)
	}
	dir := filepath.Join(d.w.dir, "docker")
	for _, m := range mountsBelow(dir) {
		unix.Unmount(m, unix.MNT_DETACH)
	}
	return os.RemoveAll(dir)
}

// removeEmpty removes a tree of empty directories, and nothing that holds a
// file: another daemon may have come meanwhile.
func removeEmpty(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			removeEmpty(filepath.Join(dir, e.Name()))
		}
	}
	os.Remove(dir)
}

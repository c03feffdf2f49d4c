package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/launch"
	"github.com/checkfu/checkfu/sandbox"
)

// proxy is one of those that are compared, running.
type proxy struct {
	name    string
	side    int
	pid     int
	missing string // why it is not running, with the command that installs it
	stop    func() error
}

func (p proxy) address() netip.AddrPort {
	return netip.AddrPortFrom(proxyAddr, firstPort+uint16(p.side))
}

func (p proxy) target(port int) string { return hostOf(p.side) + ":" + strconv.Itoa(port) }

// startGuard starts the guard that ships, or the build at path, confined and
// with its log, on its listener in the namespace of all proxies. Of a mode tls
// it is another one, with a host of its own.
func startGuard(ctx context.Context, w *world, n *egressNet, p proxy, path string) (proxy, error) {
	mode := "opaque"
	if p.name == ourTLS {
		mode = "tls"
	}
	allow := []guard.Entry{{Host: hostOf(p.side), Ports: []int64{echoPort, bulkPort}, Mode: mode}}
	for i := range egressNames {
		allow = append(allow, guard.Entry{Host: fmt.Sprintf("n%d.%s", i, hostOf(p.side)), Ports: []int64{echoPort}, Mode: mode})
	}
	config, err := guard.Config{
		V: 1, Instance: "bench", PolicyRevision: "sha256:0000000000000000000000000000000000000000000000000000000000000000",
		Resolver: egressResolver.String(), Allow: allow, ExpiresAt: sandbox.At(time.Now().Add(time.Hour)),
	}.Encode()
	if err != nil {
		return p, err
	}
	var l launch.Launcher
	if path != "" {
		if l.Executable, err = os.Open(path); err != nil {
			return p, err
		}
		defer l.Executable.Close()
	}
	log, err := os.Create(filepath.Join(w.dir, fmt.Sprintf("guard%d.log", p.side)))
	if err != nil {
		return p, err
	}
	defer log.Close()
	ln, err := n.lab.Guard.Listen(p.address())
	if err != nil {
		return p, err
	}
	defer ln.Close()
	file, err := ln.(*net.TCPListener).File()
	if err != nil {
		return p, err
	}
	defer file.Close()
	err = n.lab.Guard.Do(func() error {
		process, err := l.Guard(ctx, config, file, log)
		if err == nil {
			p.pid, p.stop = process.PID, func() error {
				return errors.Join(process.Stop(context.WithoutCancel(ctx)), process.Err())
			}
		}
		return err
	})
	return p, err
}

// egressPeer is a proxy of somebody else's: its program, how to come by it, its
// configuration, and its arguments, where CONF is the configuration's file.
type egressPeer struct {
	program, install string
	config           func(dir string, p proxy) string
	files            func(p proxy) map[string]string
	argv             []string
	user             string // who it becomes, and so owns its directory
}

// peersOfGuard have what the guard has, as far as each can: an allowlist of one
// host and the names below it and of its ports, and a log of requests in a file.
// That of tinyproxy is off: it waits for the disk with each line, three times in
// a request. Squid keeps what a name leads to, and cannot be told to do so for
// less than a second.
var peersOfGuard = []egressPeer{
	{
		program: "tinyproxy", install: "apt-get install tinyproxy-bin", argv: []string{"tinyproxy", "-d", "-c", "CONF"},
		config: func(dir string, p proxy) string {
			return fmt.Sprintf("Port %d\nListen %s\nTimeout 600\nLogFile \"%s/log\"\nLogLevel Error\nMaxClients 4000\nAllow %s/30\n"+
				"Filter \"%s/filter\"\nFilterDefaultDeny Yes\nFilterExtended Yes\nConnectPort %d\nConnectPort %d\n",
				p.address().Port(), proxyAddr, dir, proxyAddr, dir, echoPort, bulkPort)
		},
		files: func(p proxy) map[string]string {
			return map[string]string{"filter": "^(n[0-9]+\\.)?" + hostOf(p.side) + "$\n"}
		},
	},
	{
		program: "squid", install: "apt-get install squid", argv: []string{"squid", "-N", "-f", "CONF"}, user: "proxy",
		config: func(dir string, p proxy) string {
			return fmt.Sprintf("http_port %s\nacl names dstdomain .%s\nacl ports port %d %d\nacl connect method CONNECT\n"+
				"acl inner dst 10.0.0.0/8 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.168.0.0/16 fc00::/7 fe80::/10 ::1\n"+
				"http_access deny inner\nhttp_access deny !ports\nhttp_access allow connect names\nhttp_access deny all\n"+
				"cache deny all\naccess_log stdio:%[5]s/log\ncache_log %[5]s/cache.log\npid_filename none\ncoredump_dir %[5]s\n"+
				"positive_dns_ttl 1 second\nnegative_dns_ttl 1 second\npinger_enable off\nmax_filedescriptors 8192\nshutdown_lifetime 1 seconds\nvisible_hostname bench\n",
				p.address(), hostOf(p.side), echoPort, bulkPort, dir)
		},
	},
	{
		program: "smokescreen", install: "GOBIN=/usr/local/bin go install github.com/stripe/smokescreen@v0.1.0",
		argv: []string{"smokescreen", "--config-file", "CONF", "--egress-acl-file", "DIR/acl"},
		config: func(dir string, p proxy) string {
			return fmt.Sprintf("ip: %s\nport: %d\nallow_missing_role: true\nresolver_addresses:\n  - %s\n", proxyAddr, p.address().Port(), egressResolver)
		},
		files: func(p proxy) map[string]string {
			return map[string]string{"acl": "version: v1\nservices: []\ndefault:\n  project: bench\n  action: enforce\n  allowed_domains:\n    - " + hostOf(p.side) + "\n    - \"*." + hostOf(p.side) + "\"\n"}
		},
	},
}

// private runs a program with a resolv.conf of its own, which is "$0", and
// enough descriptors for a thousand tunnels.
const private = `mount --bind "$0" /etc/resolv.conf && ulimit -n 8192 && exec "$@"`

func (e egressPeer) start(ctx context.Context, w *world, n *egressNet, p proxy) (proxy, error) {
	if _, err := exec.LookPath(e.program); err != nil {
		p.missing = "not installed: " + e.install
		return p, nil
	}
	dir, err := os.MkdirTemp(w.dir, e.program)
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		return p, err
	}
	files := map[string]string{"conf": e.config(dir, p), "resolv": "nameserver " + egressResolver.Addr().String() + "\n"}
	if e.files != nil {
		for name, text := range e.files(p) {
			files[name] = text
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return p, err
		}
	}
	if e.user != "" {
		u, err := user.Lookup(e.user)
		if err != nil {
			return p, err
		}
		id, _ := strconv.Atoi(u.Uid)
		if err := os.Chown(dir, id, -1); err != nil {
			return p, err
		}
	}
	argv := make([]string, len(e.argv))
	for i, a := range e.argv {
		switch a {
		case "CONF":
			a = filepath.Join(dir, "conf")
		case "DIR/acl":
			a = filepath.Join(dir, "acl")
		}
		argv[i] = a
	}
	w.rep.command(e.program, argv)
	said, err := os.Create(filepath.Join(dir, "said"))
	if err != nil {
		return p, err
	}
	defer said.Close()
	cmd := exec.Command("sh", append([]string{"-c", private, filepath.Join(dir, "resolv")}, argv...)...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = said, said, dir
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Unshareflags: unix.CLONE_NEWNS}
	if err := n.lab.Guard.Do(cmd.Start); err != nil {
		return p, err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	p.pid = cmd.Process.Pid
	p.stop = func() error {
		_ = cmd.Process.Signal(unix.SIGTERM)
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
		return nil
	}
	if err := n.ready(ctx, p, ended); err != nil {
		return p, errors.Join(fmt.Errorf("%s: %w: %s", e.program, err, lastLine(said.Name())), p.stop())
	}
	return p, nil
}

// ready waits until a proxy takes connections; none of them has an event for it.
func (n *egressNet) ready(ctx context.Context, p proxy, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		c, err := n.lab.Neighbor.Dial(ctx, "tcp", p.address())
		if err == nil {
			return c.Close()
		}
		select {
		case <-ended:
			return errors.New("it ended")
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func lastLine(path string) (last string) {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		last = s.Text()
	}
	return last
}

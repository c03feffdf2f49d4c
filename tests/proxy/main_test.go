// Package proxy shows that the wire passes through the reverse proxies that
// stand in front of servers: nginx, HAProxy, Caddy and Apache as Debian has
// them, with the configurations of docs/proxies.md.
package proxy

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"flag"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire/client"
)

// What is waited for here is mostly a clock: it is waited for side by side, also
// on a machine of two cores.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// program is how one proxy is run in the foreground.
type program struct {
	name, path string
	argv       []string // @DIR@ is its directory
	reload     func(t *testing.T, p *proxy)
}

var programs = []program{
	{"nginx", "nginx", []string{"-e", "stderr", "-c", "@DIR@/conf"}, signalled(syscall.SIGHUP)},
	{"haproxy", "haproxy", []string{"-W", "-f", "@DIR@/conf"}, signalled(syscall.SIGUSR2)},
	{"caddy", "caddy", []string{"run", "--config", "@DIR@/conf", "--adapter", "caddyfile"}, caddyReload},
	{"apache", "apache2", []string{"-D", "FOREGROUND", "-f", "@DIR@/conf"}, signalled(syscall.SIGUSR1)},
}

func signalled(s syscall.Signal) func(*testing.T, *proxy) {
	return func(t *testing.T, p *proxy) {
		if err := p.cmd.Process.Signal(s); err != nil {
			t.Error(err)
		}
	}
}

func caddyReload(t *testing.T, p *proxy) {
	cmd := exec.CommandContext(t.Context(), p.path, "reload", "--force", "--config", p.dir+"/conf", "--adapter", "caddyfile", "--address", "unix/"+p.dir+"/admin")
	cmd.Env = p.environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("caddy reload: %v: %s", err, out)
	}
}

// allProxies in the environment makes a missing proxy a failure and no skip.
const allProxies = "CHECKFU_TEST_PROXIES"

// locate finds a proxy, or skips the test by name.
func locate(t *testing.T, p program) string {
	t.Helper()
	path, err := exec.LookPath(p.path)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + p.path)
	}
	switch {
	case err == nil:
	case os.Getenv(allProxies) == "all":
		t.Fatalf("%s is not installed, and %s=all", p.name, allProxies)
	default:
		t.Skipf("%s is not installed: apt-get install %s", p.name, p.path)
	}
	return path
}

// Nothing here passes without the proxies where all are asked for.
func TestInstalled(t *testing.T) {
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) { locate(t, p) })
	}
}

// proxy is one that runs.
type proxy struct {
	program
	path   string
	dir    string
	listen string
	pin    sandbox.Digest
	secure bool

	cmd  *exec.Cmd
	gone chan struct{}
}

// begin starts one in front of an origin; change may change what the page says.
func begin(t *testing.T, p program, kind, origin string, change func(string) string) *proxy {
	t.Helper()
	path, site := locate(t, p), snippet(t, p.name, kind)
	dir, err := os.MkdirTemp("", "proxy")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // its workers are another user
		t.Fatal(err)
	}
	x := &proxy{program: p, path: path, dir: dir, listen: freePort(t), secure: kind == "settings"}
	if x.secure {
		x.pin = certificate(t, dir)
	}
	around, err := os.ReadFile("testdata/" + p.name + ".conf")
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		changed := change(site)
		if changed == site {
			t.Fatal("the page has not what the test would change")
		}
		site = changed
	}
	conf := strings.NewReplacer("@SITE@", site).Replace(string(around))
	conf = strings.NewReplacer("@DIR@", dir, "@MODULES@", "/usr/lib/apache2/modules", "/etc/checkfu", dir,
		"127.0.0.1:8700", origin, "127.0.0.1:8443", x.listen).Replace(conf)
	if err := os.WriteFile(dir+"/conf", []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	x.start(t)
	t.Cleanup(func() { x.stop(t, syscall.SIGTERM) })
	return x
}

func (p *proxy) environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir, "XDG_DATA_HOME=" + p.dir, "XDG_CONFIG_HOME=" + p.dir, "TMPDIR=" + p.dir}
}

// start runs it, in a process group of its own, and dies with this process:
// on a thread that stays, because it is the thread whose end counts.
func (p *proxy) start(t *testing.T) {
	t.Helper()
	p.cmd, p.gone = exec.Command(p.path), make(chan struct{})
	for _, a := range p.argv {
		p.cmd.Args = append(p.cmd.Args, strings.ReplaceAll(a, "@DIR@", p.dir))
	}
	p.cmd.Env, p.cmd.Dir = p.environment(), p.dir
	// A file and no pipe: what a worker inherits cannot hold Wait up.
	log, err := os.Create(p.dir + "/said")
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error, 1)
	go func(cmd *exec.Cmd, gone chan struct{}) {
		runtime.LockOSThread()
		defer close(gone)
		defer log.Close()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}(p.cmd, p.gone)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	p.ready(t)
}

// ready waits until it accepts.
func (p *proxy) ready(t *testing.T) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(30 * time.Second)
	for {
		if c, err := net.Dial("tcp", p.listen); err == nil {
			c.Close()
			return
		}
		select {
		case <-tick.C:
		case <-p.gone:
			t.Fatalf("%s ended: %s", p.name, p.log())
		case <-late:
			t.Fatalf("%s did not listen: %s", p.name, p.log())
		}
	}
}

func (p *proxy) log() string {
	said, _ := os.ReadFile(p.dir + "/said")
	more, _ := os.ReadFile(p.dir + "/error")
	return string(said) + string(more)
}

// stop ends it and its workers. What is left after the signal is killed.
func (p *proxy) stop(t *testing.T, s syscall.Signal) {
	t.Helper()
	group := -p.cmd.Process.Pid
	if s == syscall.SIGKILL {
		_ = syscall.Kill(group, s)
	} else {
		_ = p.cmd.Process.Signal(s)
	}
	select {
	case <-p.gone:
	case <-time.After(5 * time.Second):
	}
	// Workers that drain a stream would live as long as it.
	_ = syscall.Kill(group, syscall.SIGKILL)
	for end := time.Now().Add(10 * time.Second); !errors.Is(syscall.Kill(group, 0), syscall.ESRCH); runtime.Gosched() {
		if time.Now().After(end) {
			t.Errorf("%s: processes of group %d are left", p.name, -group)
			return
		}
	}
	<-p.gone
}

// connect dials the provider through the proxy.
func (p *proxy) connect(t *testing.T, change func(*client.Options)) *client.Client {
	t.Helper()
	o := client.Options{Base: "http://" + p.listen, Token: token, Lease: lease, Heartbeat: 10 * time.Second, Deadline: time.Minute}
	if p.secure {
		o.Base, o.Pin = "https://"+p.listen, p.pin
	}
	if change != nil {
		change(&o)
	}
	c, err := client.Dial(t.Context(), o)
	if err != nil {
		t.Fatalf("%v: %s", err, p.log())
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// protocol is what a client and the proxy agree on.
func (p *proxy) protocol(t *testing.T) string {
	t.Helper()
	d := tls.Dialer{Config: &tls.Config{NextProtos: []string{"h2", "http/1.1"}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := d.DialContext(ctx, "tcp", p.listen)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.(*tls.Conn).ConnectionState().NegotiatedProtocol
}

var (
	portMu sync.Mutex
	given  = map[string]bool{}
)

// freePort is an address below the ephemeral ports, so that no connection of a
// test can take it before the proxy does.
func freePort(t *testing.T) string {
	t.Helper()
	portMu.Lock()
	defer portMu.Unlock()
	for range 1000 {
		address := "127.0.0.1:" + strconv.Itoa(18000+mathrand.IntN(14000))
		if given[address] {
			continue
		}
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			given[address] = true
			return address
		}
	}
	t.Fatal("no free port")
	return ""
}

// certificate writes a key and a certificate for it, and returns the pin.
func certificate(t *testing.T, dir string) sandbox.Digest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "proxy"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	for name, data := range map[string][]byte{"proxy.crt": crt, "proxy.key": private, "proxy.pem": append(bytes.Clone(crt), private...)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return client.PublicKeyDigest(leaf)
}

// snippet reads one configuration out of the page that operators read.
func snippet(t *testing.T, name, kind string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/proxies.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, begun := strings.Cut(string(page), "\n```"+name+" "+kind+"\n")
	site, _, ended := strings.Cut(rest, "\n```\n")
	if !begun || !ended {
		t.Fatalf("docs/proxies.md has no %s %s", name, kind)
	}
	return site
}

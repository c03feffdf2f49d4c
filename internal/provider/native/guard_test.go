package native

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/sandbox"
)

// guardMain is the guard of these tests, as a process like the real one: the
// configuration on descriptor 3, the log on 4, the listener on 5, its owner's
// life on 0. It judges by the list, as it stands there, and answers with an echo.
//
// In mode "relay" it is a model relay instead, likewise in "stubborn relay". In mode "stubborn" it outlives its owner; in mode "other" it holds another
// policy than it was given; in mode "missing" it ends at once.
func guardMain(mode string) {
	config, err := io.ReadAll(os.NewFile(3, "config"))
	childFailed(err)
	if strings.HasSuffix(mode, "relay") {
		relayMain(config, mode == "stubborn relay")
	}
	c, err := guard.ParseConfig(config)
	childFailed(err)
	if mode == "missing" {
		os.Exit(1)
	}
	listener, err := net.FileListener(os.NewFile(5, "listener"))
	childFailed(err)
	os.NewFile(5, "listener").Close()
	log := os.NewFile(4, "log")
	digest := canonical.Digest(config)
	if mode == "other" {
		digest = canonical.Digest(nil)
	}
	var writing sync.Mutex
	prev := ""
	line := func(d map[string]any) {
		writing.Lock()
		defer writing.Unlock()
		if prev != "" {
			d["prev"] = prev
		}
		text, err := json.Marshal(d)
		childFailed(err)
		prev = canonical.Digest(text)
		_, err = log.Write(append(text, '\n'))
		childFailed(err)
	}
	line(map[string]any{"kind": "start", "config": digest})
	fmt.Println("listening")
	if mode != "stubborn" {
		go func() {
			io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
	}
	for {
		conn, err := listener.Accept()
		childFailed(err)
		go guardOne(conn, c, line)
	}
}

func guardOne(conn net.Conn, c guard.Config, line func(map[string]any)) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	first, _ := in.ReadString('\n')
	target := strings.TrimSuffix(strings.TrimPrefix(first, "CONNECT "), " HTTP/1.1\r\n")
	for h := ""; h != "\r\n"; {
		var err error
		if h, err = in.ReadString('\n'); err != nil {
			return
		}
	}
	for _, e := range c.Allow {
		for _, port := range e.Ports {
			if target == fmt.Sprintf("%s:%d", e.Host, port) {
				line(map[string]any{"kind": "decision", "decision": "allow", "host": e.Host, "port": port})
				io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
				io.Copy(conn, in)
				return
			}
		}
	}
	line(map[string]any{"kind": "decision", "decision": "deny", "raw": target, "reason": "not_allowlisted"})
	io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\n\r\n")
}

// testGuard starts guardMain in a mode. Its command line names the provider's
// directory, by which the census finds it.
func testGuard(dir, mode string) *Egress {
	return &Egress{
		Resolver: netip.MustParseAddrPort("127.0.0.53:53"),
		Start: func(ctx context.Context, config []byte, listener, log *os.File) (Attendant, error) {
			told, tell, err := os.Pipe()
			if err != nil {
				return nil, err
			}
			cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{"guard", dir}}
			cmd.Env = []string{"CHECKFU_TEST_GUARD=" + mode}
			cmd.ExtraFiles = []*os.File{told, log, listener}
			life, err := cmd.StdinPipe()
			if err != nil {
				return nil, err
			}
			said, err := cmd.StdoutPipe()
			if err != nil {
				return nil, err
			}
			err = cmd.Start()
			told.Close()
			if err != nil {
				return nil, err
			}
			g := &testProcess{cmd: cmd, done: make(chan struct{}), life: life}
			if strings.HasPrefix(mode, "stubborn") {
				g.life = nil
			}
			tell.Write(config)
			tell.Close()
			_, err = bufio.NewReader(said).ReadString('\n')
			go func() {
				g.err = cmd.Wait()
				life.Close()
				close(g.done)
			}()
			if err != nil {
				<-g.done
				return nil, errors.New("the guard did not begin")
			}
			return g, nil
		},
	}
}

type testProcess struct {
	cmd  *exec.Cmd
	done chan struct{}
	life io.Closer // whose end it ends at, nil where it has to be killed
	err  error     // of its end, after done
}

func (g *testProcess) PID() int              { return g.cmd.Process.Pid }
func (g *testProcess) Done() <-chan struct{} { return g.done }
func (g *testProcess) Err() error            { return g.err }
func (g *testProcess) Stop(ctx context.Context) error {
	if g.life != nil {
		g.life.Close()
	} else {
		g.cmd.Process.Kill()
	}
	select {
	case <-g.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// guarded makes p one whose allowlist machines have the guard of these tests.
func guarded(p *Provider, mode string) *Provider {
	p.opt.Egress = testGuard(p.opt.Dir, mode)
	return p
}

// allowing asks for a machine that may reach the named destinations.
func allowing(p *Provider, destinations ...sandbox.Destination) sandbox.ProvisionRequest {
	r := request(p)
	r.Profile.NetworkPolicy = sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: append([]sandbox.Destination{}, destinations...)}
	return r
}

var listed = sandbox.Destination{Host: "allowed.test", Port: 443}

// ask is a shell line that asks the proxy for a destination, says something
// through it and prints what comes back.
func ask(target string) string {
	return `printf 'CONNECT ` + target + ` HTTP/1.1\r\nHost: ` + target + `\r\n\r\nthrough' | nc 127.0.0.1 3128; echo "status $?"`
}

// activate provisions and starts what r asks for.
func activate(t testing.TB, p *Provider, r sandbox.ProvisionRequest) sandbox.InstanceID {
	t.Helper()
	id := provision(t, p, r)
	if _, err := p.Activate(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return id
}

// ended waits for a guard of these tests.
func ended(t testing.TB, g Attendant) {
	t.Helper()
	select {
	case <-g.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("the guard lives")
	}
}

// sleeper is a process that has f open and does nothing.
func sleeper(t testing.TB, f *os.File) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.ExtraFiles = []*os.File{f}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd
}

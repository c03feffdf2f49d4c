package matrix

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// HarnessPath is where the image of a real machine has this very binary: what
// runs in there is the harness of a Run, which does as it is told.
const HarnessPath = "/usr/bin/checkfu-egress-harness"

// What the harness is told, a word and perhaps a target in one line, and what it
// answers, in one line too.
const (
	tellEnvironment = "environment" // answers it, as JSON
	tellLinks       = "links"       // answers the names of what there is of a network
	tellConnect     = "connect"     // to HOST:PORT through the proxy of its environment; keeps the tunnel
	tellModel       = "model"       // asks the model API of its environment, with its token
	tellReach       = "reach"       // ADDRESS:PORT, past all of it
)

// harnessMain is a whole run of the harness: one answer where it was given a
// word, else all that its standard input asks, to its end.
func harnessMain(args []string) int {
	h := harness{out: os.Stdout}
	if len(args) > 0 {
		fmt.Fprintln(h.out, h.answer(strings.Join(args, " ")))
		return 0
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		fmt.Fprintln(h.out, h.answer(in.Text()))
	}
	return 0
}

type harness struct {
	out     io.Writer
	tunnels []net.Conn // open until it ends
}

func (h *harness) answer(line string) string {
	word, target, _ := strings.Cut(line, " ")
	switch word {
	case tellEnvironment:
		text, err := json.Marshal(os.Environ())
		if err != nil {
			return err.Error()
		}
		return string(text)
	case tellLinks:
		links, err := net.Interfaces()
		var names []string
		for _, l := range links {
			names = append(names, l.Name)
		}
		return oneOf(strings.Join(names, " "), err)
	case tellConnect:
		return oneOf("connected", h.connect(target))
	case tellModel:
		return oneOf("answered", h.model())
	case tellReach:
		conn, err := net.DialTimeout("tcp", target, harnessBound)
		if err == nil {
			conn.Close()
		}
		return oneOf("reached", err)
	}
	return "unknown"
}

// harnessBound is how long the harness waits for anybody.
const harnessBound = 10 * time.Second

func oneOf(answer string, err error) string {
	if err != nil {
		return strings.ReplaceAll("failed: "+err.Error(), "\n", "; ")
	}
	return answer
}

// connect asks the proxy that the environment names and shows that what is behind
// it echoes.
func (h *harness) connect(target string) error {
	proxy, err := url.Parse(os.Getenv("https_proxy"))
	if err != nil || proxy.Host == "" {
		return fmt.Errorf("https_proxy: expected a proxy, got %q", os.Getenv("https_proxy"))
	}
	conn, err := net.DialTimeout("tcp", proxy.Host, harnessBound)
	if err != nil {
		return err
	}
	h.tunnels = append(h.tunnels, conn)
	conn.SetDeadline(time.Now().Add(harnessBound))
	io.WriteString(conn, connectHead(target)+"hello")
	in := bufio.NewReader(conn)
	answer, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return err
	}
	if answer.StatusCode != 200 {
		return fmt.Errorf("status %d", answer.StatusCode)
	}
	echo := make([]byte, len("hello"))
	if _, err := io.ReadFull(in, echo); err != nil || !bytes.Equal(echo, []byte("hello")) {
		return fmt.Errorf("expected hello, got %q: %v", echo, err)
	}
	return nil
}

// model asks as the SDKs do that take a base URL and a key.
func (h *harness) model() error {
	request, err := http.NewRequest(http.MethodPost, os.Getenv("ANTHROPIC_BASE_URL")+"/v1/messages", strings.NewReader(modelBody))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Anthropic-Version", "2023-06-01")
	request.Header.Set("X-Api-Key", os.Getenv("ANTHROPIC_API_KEY"))
	// No proxy of the environment: the relay is reached directly or not at all.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: harnessBound}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != 200 {
		return fmt.Errorf("status %d: %v", answer.StatusCode, err)
	}
	return nil
}

// modelBody is the smallest request that is one.
const modelBody = `{"model":"m","max_tokens":1,"messages":[]}`

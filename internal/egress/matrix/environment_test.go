package matrix

import (
	"slices"
	"testing"

	"github.com/checkfu/checkfu/internal/egress/route"
)

// TestNamesOnly: what a machine is told names the guard and the relay, whole, and
// nobody else under any name.
func TestNamesOnly(t *testing.T) {
	token := route.NewToken()
	right := []string{"PATH=/usr/local/bin:/bin", "HOME=/home/checkfu", "USER=checkfu", "TERM=xterm-256color", "TZ=:/etc/localtime"}
	for _, name := range proxyNames {
		right = append(right, name+"=http://127.0.0.1:3128")
	}
	right = append(right, "no_proxy=localhost,127.0.0.1,::1", "NO_PROXY=localhost,127.0.0.1,::1")
	model := []string{
		"ANTHROPIC_BASE_URL=http://127.0.0.1:3129", "OPENAI_BASE_URL=http://127.0.0.1:3129/v1",
		"ANTHROPIC_API_KEY=" + token, "OPENAI_API_KEY=" + token,
	}
	if err := namesOnly(right, token); err == nil {
		t.Error("a machine without its model route is right")
	}
	if err := namesOnly(slices.Concat(right, model), token); err != nil {
		t.Errorf("%v", err)
	}
	for _, wrong := range []string{
		"https_proxy=http://10.77.0.10:3128", "https_proxy=http://127.0.0.1:3129", "HTTP_PROXY=socks5://127.0.0.1:3128", "all_proxy=",
		"no_proxy=localhost,10.0.0.0/8", "NO_PROXY=*", "no_proxy=",
		"ANTHROPIC_BASE_URL=http://127.0.0.1:3128", "ANTHROPIC_BASE_URL=https://models.test", "OPENAI_BASE_URL=http://127.0.0.1:3129",
		"ANTHROPIC_API_KEY=sk-other", "OPENAI_API_KEY=", "ANTHROPIC_AUTH_TOKEN=" + token + "x", "SESSION=" + token, "X=a" + token + "b",
		"ENDPOINT=https://models.test/v1", "PLANE=45.33.41.2", "PLANE=45.33.41.2:8443", "PLANE=[fd00::1]:443", "PLANE=plane.test:8443",
		"NAMESERVERS=1.1.1.1, 8.8.8.8", "EXTRA=--gateway=plane.test:443", "GIT_SSH_COMMAND=ssh -o ProxyCommand=nc 10.0.0.1 22",
	} {
		list := slices.Concat(right, model)
		name := wrong[:slices.Index([]byte(wrong), '=')+1]
		list = slices.DeleteFunc(list, func(s string) bool { return len(s) > len(name) && s[:len(name)] == name })
		if err := namesOnly(append(list, wrong), token); err == nil {
			t.Errorf("%s: expected it to be wrong", wrong)
		}
	}
	for i, gone := range slices.Concat(right, model) {
		list := slices.Delete(slices.Concat(right, model), i, i+1)
		if err := namesOnly(list, token); (err == nil) != (i < 5) {
			t.Errorf("without %s: %v", gone, err)
		}
	}
	if namesOnly(slices.Concat(right, model, right[5:6]), token) == nil {
		t.Error("a variable that is there twice is right")
	}
}

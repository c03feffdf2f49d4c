package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/sandbox"
)

func TestReadKeyFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // past the umask
			t.Fatal(err)
		}
		return path
	}
	good := write("good", secretKey+"\n", 0o600)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	for path, expected := range map[string]string{
		good:                                            "",
		write("read", secretKey, 0o400):                 "",
		write("crlf", secretKey+"\r\n", 0o600):          "",
		write("group", secretKey, 0o640):                "mode 0600",
		write("others", secretKey, 0o604):               "mode 0600",
		write("empty", "\n", 0o600):                     "a key",
		write("lines", secretKey+"\nx\n", 0o600):        "visible ASCII",
		write("space", secretKey+" ", 0o600):            "visible ASCII",
		write("long", strings.Repeat("x", 5000), 0o600): "at most 4096",
		link:                       "a file",
		dir:                        "a regular file",
		filepath.Join(dir, "none"): "a file",
	} {
		k, err := ReadKeyFile(path)
		if expected == "" {
			if err != nil || k.secret != secretKey {
				t.Errorf("%s: %v", path, err)
			}
			continue
		}
		if bad, ok := errors.AsType[*KeyError](err); !ok || !strings.Contains(bad.Expected, expected) || strings.Contains(err.Error(), secretKey) {
			t.Errorf("%s: %v", path, err)
		}
	}
	k := key(t)
	text, err := json.Marshal(map[string]any{"a": k, "b": &k})
	if err != nil {
		t.Fatal(err)
	}
	for _, said := range []string{fmt.Sprint(k), fmt.Sprintf("%v %+v %#v %s", k, &k, k, k), string(text), fmt.Sprintf("%+v", map[route.Style]Key{"a": k})} {
		if strings.Contains(said, secretKey) {
			t.Errorf("%s", said)
		}
	}
}

func TestUpstreams(t *testing.T) {
	for at, want := range map[string]string{
		"https://api.anthropic.com":   "https://api.anthropic.com",
		"https://router.test/api/":    "https://router.test/api",
		"http://127.0.0.1:8080":       "http://127.0.0.1:8080",
		"http://[::1]:8080/x":         "http://[::1]:8080/x",
		"http://api.anthropic.com":    "",
		"http://localhost:8080":       "",
		"http://10.0.0.1":             "",
		"https://user:pass@host.test": "",
		"https://host.test?x=1":       "",
		"https://host.test?":          "",
		"https://host.test#x":         "",
		"https://host.test/a%2fb":     "",
		"https://host.test/v1":        "",
		"https://":                    "",
		"ftp://host.test":             "",
		"unix:/run/x":                 "",
		"host.test":                   "",
		"":                            "",
	} {
		got, err := Upstream{route.OpenAI, at}.compile()
		if want == "" {
			if _, ok := errors.AsType[*sandbox.Invalid](err); !ok {
				t.Errorf("%s: %v", at, err)
			}
		} else if err != nil || got.String() != want {
			t.Errorf("%s: %v, %v", at, got, err)
		}
	}
	leases := openStore(t, t.TempDir(), nil)
	ok := Options{Upstreams: []Upstream{{route.OpenAI, "https://a.test"}}, Keys: map[route.Style]Key{route.OpenAI: key(t)}, Leases: leases, Counts: leases, Log: &logged{}}
	if _, err := New(ok); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*Options){
		"no upstream":   func(o *Options) { o.Upstreams = nil },
		"no key":        func(o *Options) { o.Keys = nil },
		"an empty key":  func(o *Options) { o.Keys = map[route.Style]Key{route.OpenAI: {}} },
		"two":           func(o *Options) { o.Upstreams = append(o.Upstreams[:1:1], o.Upstreams[0]) },
		"another style": func(o *Options) { o.Upstreams = []Upstream{{"other", "https://a.test"}} },
		"no leases":     func(o *Options) { o.Leases = nil },
		"no counts":     func(o *Options) { o.Counts = nil },
		"no log":        func(o *Options) { o.Log = nil },
	} {
		o := ok
		change(&o)
		if _, err := New(o); err == nil {
			t.Error(what)
		}
	}
}

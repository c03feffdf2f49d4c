package matrix

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/checkfu/checkfu/internal/egress/lab"
)

// The addresses in a machine: what its environment may name.
var (
	guardDoor = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), lab.GuardPort).String()
	relayDoor = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), lab.RelayPort).String()
)

// proxyNames are the variables by which programs find a proxy, in both cases.
var proxyNames = []string{"http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"}

// exemptNames are those by which they find who is asked without one.
var exemptNames = []string{"no_proxy", "NO_PROXY"}

// modelNames are the variables by which SDKs find a model API, and what they have
// to say.
var modelNames = map[string]string{
	"ANTHROPIC_BASE_URL": "http://" + relayDoor,
	"OPENAI_BASE_URL":    "http://" + relayDoor + "/v1",
}

// tokenNames are the variables by which they find a key, where the token is.
var tokenNames = []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY"}

// namesOnly holds that an environment names the guard and the relay and nobody
// else, and has the token of the run where a key goes and nowhere else.
func namesOnly(environment []string, token string) error {
	seen := map[string]bool{}
	var errs []error
	wrong := func(name, expected, got string) {
		errs = append(errs, fmt.Errorf("%s: expected %s, got %.100q", name, expected, got))
	}
	for _, entry := range environment {
		name, value, _ := strings.Cut(entry, "=")
		if seen[name] {
			wrong(name, "it once", value)
		}
		seen[name] = true
		url, model := modelNames[name]
		switch {
		case slices.Contains(proxyNames, name):
			if want := "http://" + guardDoor; value != want {
				wrong(name, want, value)
			}
		case slices.Contains(exemptNames, name):
			for host := range strings.SplitSeq(value, ",") {
				if a, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !a.IsLoopback()) {
					wrong(name, "loopback alone", value)
				}
			}
		case model:
			if value != url {
				wrong(name, url, value)
			}
		case slices.Contains(tokenNames, name):
			if value != token {
				wrong(name, "the token of the run", value[:min(len(value), 8)]+"…")
			}
		case strings.Contains(value, token):
			wrong(name, "no token", "the token of the run")
		case namesAddress(value):
			wrong(name, "no address", value)
		}
	}
	for _, name := range slices.Concat(proxyNames, exemptNames, []string{"ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"}) {
		if !seen[name] {
			wrong(name, "it", "nothing")
		}
	}
	return errors.Join(errs...)
}

// namesAddress reports whether a value has a URL, a literal address or HOST:PORT
// anywhere in it.
func namesAddress(value string) bool {
	if strings.Contains(value, "://") {
		return true
	}
	return slices.ContainsFunc(strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(",; \t\r\n=@\"'()", r) }), func(word string) bool {
		if _, err := netip.ParseAddr(strings.Trim(word, "[]")); err == nil {
			return true
		}
		host, port, found := cutLast(word, ":")
		digits := strings.Trim(port, "0123456789") == "" && port != ""
		return found && digits && host != "" && !strings.ContainsAny(host, "/")
	})
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// environmentOfRun is A15: what a program of a real machine is told, by a live
// process and by a command that is executed, of each provider that ships. A Run that
// does not begin, answer or end was not judged: nothing but a wrong environment fails,
// or any accident would catch the mutant of one.
func environmentOfRun(t *trial) error {
	for _, p := range t.providers {
		if p.Lacks != "" {
			return skipError{p.Name + ": no real machine can be had here: " + p.Lacks}
		}
		r, err := t.beginRun(t.ctx, p, false)
		if err != nil {
			return named(p.Name, blind(err))
		}
		if err := r.environmentsToTheEnd(t); err != nil {
			return named(p.Name, err)
		}
	}
	return nil
}

// environmentsToTheEnd is environments, and the end of the Run.
func (r *realRun) environmentsToTheEnd(t *trial) error {
	err := r.environments(t)
	if ended := r.end(t.ctx); ended != nil {
		err = errors.Join(err, blind(fmt.Errorf("the end of the Run: %w", ended)))
	}
	return err
}

// environments holds both environments to what they may name.
// Errors: blindError but where one names more.
func (r *realRun) environments(t *trial) error {
	live, err := r.ask(tellEnvironment)
	if err != nil {
		return blind(err)
	}
	executed, err := r.Execute(t.ctx, r.instance(), HarnessPath, tellEnvironment)
	if err != nil {
		return blind(fmt.Errorf("execute: %w", err))
	}
	for what, text := range map[string]string{"a live process": live, "a command that is executed": string(executed)} {
		var list []string
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return blind(fmt.Errorf("the environment of %s: %.200q: %w", what, text, err))
		}
		if err := namesOnly(list, r.token); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

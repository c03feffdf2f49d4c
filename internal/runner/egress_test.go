package runner

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
)

// The guard's word is asked for once, after the command and before the machine is
// gone, and a failure of it is told; with an open network the failure alone is.
func TestRun_TheGuardsWord(t *testing.T) {
	allowlist := sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: []sandbox.Destination{{Host: "allowed.test", Port: 443}}}
	word := Egress{Allowed: 2, Refused: []Refusal{{"other\xff.test", 443, "not_allowlisted", 3}}, GuardEnded: true}
	for _, c := range []struct {
		name    string
		policy  sandbox.NetworkPolicy
		err     error
		asked   int
		want    string // in the encoded record
		failure string
	}{
		{"allowlist", allowlist, nil, 1, `"egress":{"allowed":2,"guard_ended":true,"refused":[{"count":3,"host":"other` + "\uFFFD" + `.test","port":443,"reason":"not_allowlisted"}]}`, ""},
		{"none", sandbox.NetworkPolicy{Mode: sandbox.NetworkNone}, nil, 0, "", ""},
		{"unrestricted", sandbox.NetworkPolicy{Mode: sandbox.NetworkUnrestricted}, nil, 1, "", ""},
		{"unrestricted, and a fence was lost", sandbox.NetworkPolicy{Mode: sandbox.NetworkUnrestricted}, errors.New("cut"), 1, "", "cut"},
		{"a failure", allowlist, errors.New("no log"), 1, "", "no log"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, "true")
			w.spec.Network = c.policy
			asked := 0
			w.runner.Egress = func(_ context.Context, id sandbox.InstanceID) (Egress, error) {
				asked++
				if _, err := w.provider.Execute(t.Context(), id, sandbox.Command{Executable: "true", Arguments: []string{}, WorkingDirectory: "/", Environment: map[string]string{}, TimeoutSeconds: 1, OutputLimitBytes: 1}); err != nil {
					t.Errorf("its machine is gone: %v", err)
				}
				return word, c.err
			}
			record, err := w.run()
			if err != nil {
				t.Fatal(err)
			}
			data, err := record.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if asked != c.asked || c.want != "" && !strings.Contains(string(data), c.want) || c.want == "" && strings.Contains(string(data), `"egress":`) {
				t.Errorf("asked %d times: %s", asked, data)
			}
			if got := record.Failures; c.failure == "" && len(got) > 0 || c.failure != "" && (len(got) != 1 || got[0].Message != c.failure) {
				t.Errorf("failures %v", got)
			}
		})
	}
}

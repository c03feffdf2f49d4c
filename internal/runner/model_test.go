package runner

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// The gateway's count is asked for once, when the machine is gone and with it
// whoever could use the route, also after a command that failed; a failure of it
// is told.
func TestRun_TheGatewaysCount(t *testing.T) {
	for _, c := range []struct {
		name    string
		command string
		err     error
		want    string // in the encoded record
		failure string
	}{
		{"a count", "true", nil, `"model":{"cached_tokens":0,"down_bytes":0,"estimated":0,"input_tokens":0,"output_tokens":7,"requests":2,"unsettled":true,"up_bytes":0}`, ""},
		{"after a failure", "false", nil, `"output_tokens":7`, ""},
		{"none", "true", errors.New("no gateway"), "", "no gateway"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.command)
			asked := 0
			w.runner.Model = func(context.Context) (Model, error) {
				asked++
				return Model{Requests: 2, OutputTokens: 7, Unsettled: true}, c.err
			}
			record, err := w.run()
			if err != nil {
				t.Fatal(err)
			}
			data, err := record.Encode()
			if err != nil || asked != 1 || record.Disposition == "" {
				t.Errorf("asked %d times, %v", asked, err)
			}
			if c.want != "" && !strings.Contains(string(data), c.want) || c.want == "" && strings.Contains(string(data), `"model":`) {
				t.Errorf("%s", data)
			}
			if got := record.Failures; c.failure == "" && len(got) > 0 || c.failure != "" && (len(got) != 1 || got[0].Message != c.failure) {
				t.Errorf("failures %v", got)
			}
		})
	}
}

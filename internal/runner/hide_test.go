package runner

import (
	"fmt"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
)

// A provider holds every value, and may quote one in an error.
func TestNoValueOfTheEnvironmentComesBackInAnError(t *testing.T) {
	env := map[string]string{"A": "canary-7", "B": "canary-7-longer", "C": "canary\"\n\xff", "EMPTY": "", "SHORT": "err"}
	for _, op := range []sandbox.Operation{
		sandbox.OpProvision, sandbox.OpWriteFile, sandbox.OpActivate, sandbox.OpOpenProcess, sandbox.OpListProjectDir, sandbox.OpRelease,
	} {
		for _, reason := range []string{sandbox.ReasonProviderError, sandbox.ReasonStartFailed} {
			w := newWorld(t, "true")
			w.spec.Repo, w.spec.Environment = &Repo{Dir: repository(t)}, env
			w.use(&saboteur{Provider: w.provider, before: func(at sandbox.Operation) error {
				if at != op {
					return nil
				}
				return sandbox.Failed(op, reason, fmt.Errorf("%q %s %q", "C="+env["C"], env["B"], env["A"]))
			}})
			r, err := w.run()
			if err != nil && strings.Contains(err.Error(), "canary") {
				t.Errorf("%s: the error holds a value: %v", op, err)
			}
			encoded, _ := r.Encode()
			if strings.Contains(string(encoded), "canary") || !strings.Contains(string(encoded), "(value of B) ") {
				t.Errorf("%s: the record holds a value, or says nothing: %s", op, encoded)
			}
		}
	}
}

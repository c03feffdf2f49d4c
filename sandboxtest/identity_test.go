package sandboxtest_test

import (
	"testing"

	"github.com/checkfu/checkfu/internal/crosscheck"
)

func TestIdentityFaultsAreKilled(t *testing.T) {
	partOfMatrix(t)
	checks := probesOf("CI")
	for _, row := range []string{"identity.provision", "identity.activate", "identity.resume"} {
		for _, check := range crosscheck.InstanceChecks() {
			checks = append(checks, row+"/"+check)
		}
	}
	killedByName(t, group("I"), append(checks, "identity.provision/instance_id", "identity.activate/instance_id"))
}

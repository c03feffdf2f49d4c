package all

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/checkfu/checkfu/internal/guest/initbin"
	"github.com/checkfu/checkfu/internal/provider/native/uplink"
	"github.com/checkfu/checkfu/sandbox"
)

// The envelope offers allowlists exactly where a guard can run, and unrestricted
// networks where the host lets machines out: the same with the
// provider compiled in and served.
func TestOpen_NetworksThatThisHostHas(t *testing.T) {
	if _, err := initbin.Bytes(); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root and the guest init")
	}
	modes, grade := []sandbox.NetworkMode{sandbox.NetworkNone}, sandbox.EgressUnsupported
	if Allowlist() == nil {
		modes, grade = append(modes, sandbox.NetworkAllowlist), sandbox.EgressAdvisoryFilter
	}
	if (&uplink.Host{}).Lacks() == nil {
		modes = append(modes, sandbox.NetworkUnrestricted)
	}
	want := fmt.Sprint(modes, grade)
	for _, served := range []bool{false, true} {
		o, err := Open(NativeRunc, Options{Dir: filepath.Join(t.TempDir(), "state"), Served: served})
		if err != nil {
			t.Fatal(err)
		}
		asked, err := o.Provider.Capabilities(t.Context())
		for _, c := range []sandbox.Capabilities{o.Envelope, asked} {
			if got := fmt.Sprint(c.NetworkModes, c.EgressCertification); err != nil || got != want {
				t.Errorf("served %v: %s, %v; want %s", served, got, err, want)
			}
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}

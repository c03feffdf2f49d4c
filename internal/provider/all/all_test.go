package all

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/sandboxtest"
)

func TestEveryNameHasAnEnvelopeAndTheyDiffer(t *testing.T) {
	seen := map[sandbox.Target]string{}
	for _, name := range Names() {
		c, err := Envelope(name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if other := seen[c.Target()]; other != "" {
			t.Errorf("%s and %s are one target: selecting one could yield the other", name, other)
		}
		seen[c.Target()] = name
	}
}

func TestNames(t *testing.T) {
	for _, test := range []struct{ name, want string }{
		{"native", "native:runsc"}, {"native:runsc", "native:runsc"}, {"native:runc", "native:runc"}, {"memory", "memory"},
		{"", ""}, {"Native", ""}, {"native:", ""}, {"native:kata", ""}, {"memory ", ""},
	} {
		got, err := Canonical(test.name)
		var bad *NameError
		if got != test.want || (err == nil) != (test.want != "") || err != nil && !errors.As(err, &bad) {
			t.Errorf("Canonical(%q) = %q, %v", test.name, got, err)
		}
		if test.want == "" {
			if _, err := Open(test.name, Options{Dir: t.TempDir()}); !errors.As(err, &bad) {
				t.Errorf("Open(%q): %v", test.name, err)
			}
		}
	}
}

func TestTheMemoryProviderIsWhatItsEnvelopeSays(t *testing.T) {
	o, err := Open(Memory, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := o.Provider.Capabilities(context.Background())
	if err != nil || c.Target() != o.Envelope.Target() {
		t.Errorf("%+v, %v", c.Target(), err)
	}
	if sandbox.ImageDigest(o.Image) == "" || o.Host != nil || o.Close() != nil {
		t.Errorf("%+v", o)
	}
}

func TestTheSentryRootFitsASocketAddressAndIsStable(t *testing.T) {
	for _, dir := range []string{"/var/lib/checkfu", "/" + strings.Repeat("x", 54), "/" + strings.Repeat("x", 55), "/" + strings.Repeat("x", 4000)} {
		root := sentryRoot(dir)
		if len(root) > 60 || root != sentryRoot(dir) {
			t.Errorf("%d bytes: %s", len(dir), root)
		}
	}
	if sentryRoot("/"+strings.Repeat("x", 99)) == sentryRoot("/"+strings.Repeat("y", 99)) {
		t.Error("two directories share a root")
	}
}

// TestServed: over a wire nobody claims to be the Runner, in the envelope or in
// the evidence of a process, and everything else stays as it was.
func TestServed(t *testing.T) {
	p := sandboxtest.Override{Provider: memory.New(memory.Options{}),
		CapabilitiesFunc: func(context.Context) (sandbox.Capabilities, error) {
			c, err := Envelope(NativeRunc)
			c.Enforcement = c.Enforcement.With(sandbox.AxisRootReadOnly, sandbox.NotEnforced)
			return c, err
		},
		Members: func(o *sandbox.Optional) { o.OpenProcess, o.ListDir = opener{}, nil },
	}
	want := sandbox.EnforcedBy(sandbox.ProviderAttested).With(sandbox.AxisRootReadOnly, sandbox.NotEnforced)
	s := Served(p)
	c, err := s.Capabilities(t.Context())
	if err != nil || c.Enforcement != want || c.Provider != "native" || c.Validate() != nil {
		t.Errorf("%+v, %v", c, err)
	}
	o := s.Optional()
	if o.ListDir != nil || o.ReadFiles == nil {
		t.Error("other members than the provider has")
	}
	process, err := o.OpenProcess.OpenProcess(t.Context(), "i", "pr", sandbox.ProcessRequest{})
	if err != nil || process.Evidence().Enforcement != want || process.Evidence().ProcessID != "pr" {
		t.Errorf("%+v, %v", process, err)
	}
	if _, err := o.OpenProcess.OpenProcess(t.Context(), "", "", sandbox.ProcessRequest{}); err == nil {
		t.Error("a refusal was lost")
	}
}

type opener struct{}

func (opener) OpenProcess(_ context.Context, id sandbox.InstanceID, processID string, _ sandbox.ProcessRequest) (sandbox.Process, error) {
	if id == "" {
		return nil, errors.New("refused")
	}
	return witness{processID: processID}, nil
}

type witness struct {
	sandbox.Process
	processID string
}

func (w witness) Evidence() sandbox.Evidence {
	return sandbox.Evidence{ProcessID: w.processID, Enforcement: sandbox.EnforcedBy(sandbox.RunnerEnforced).With(sandbox.AxisRootReadOnly, sandbox.NotEnforced)}
}

// TestTheServedMemoryProviderClaimsNoAllowlist: its machines connect to nothing
// that anybody outside could see.
func TestTheServedMemoryProviderClaimsNoAllowlist(t *testing.T) {
	o, err := Open(Memory, Options{Served: true})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(o.Envelope.NetworkModes, sandbox.NetworkAllowlist) || o.Envelope.EgressCertification != sandbox.EgressUnsupported || o.Envelope.Validate() != nil {
		t.Errorf("%+v", o.Envelope)
	}
}

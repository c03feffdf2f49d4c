package all

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
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

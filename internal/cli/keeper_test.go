package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/sandbox"
)

// A session's packages come from where its starter was told, also when it is resumed:
// a public registry may have a package of the same name, and of somebody else's.
func TestKeptOptions_PackagesComeFromWhereTheStarterWasTold(t *testing.T) {
	dir := t.TempDir()
	settings := func(name, host string) string {
		path, bundle := filepath.Join(dir, name), filepath.Join(dir, "ca.pem")
		text := fmt.Sprintf(`{"v":1,"managers":[{"manager":"npm","mirror":"https://%s/"}],"ca_bundle":%q}`, host, bundle)
		if err := errors.Join(os.WriteFile(bundle, []byte("certificates\n"), 0o600), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	settings(all.RegistriesFile, "operator.corp.test")
	mine := settings("mine.json", "mine.corp.test")
	in := keeper.Inputs{Dir: dir, Provider: all.Memory, Registries: mine}
	o, err := keptOptions(in)
	if err != nil || o.Registries == nil {
		t.Fatal(o.Registries, err)
	}
	if got := o.Registries.Destinations(sandbox.ManagerNpm); len(got) != 1 || got[0].Host != "mine.corp.test" {
		t.Errorf("npm's come from %v", got)
	}
	for what, spoil := range map[string]func() error{
		"not settings": func() error { return os.WriteFile(mine, []byte(`{"v":2}`), 0o600) },
		"gone":         func() error { return os.Remove(mine) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if _, err := openKept(t.Context(), in); err == nil || !strings.Contains(err.Error(), mine) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := forkOf(keeper.Record{SessionID: "s", Registries: mine}); got.Registries != mine || got.SessionID == "s" {
		t.Errorf("a fork is %+v", got)
	}
	if _, at, err := registries(""); at != nil || err != nil {
		t.Error(at, err)
	}
}

package all

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/provider/native/recipe"
)

// RegistriesFile is the operator's settings of where packages come from, in a
// state directory. One that is not there is no setting.
const RegistriesFile = "registries.json"

// maxBundle bounds a file of certificates.
const maxBundle = 8 << 20

// bundles are where hosts keep the certificates that they trust.
var bundles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}

// Registries reads a file of settings, and the certificates that it names, or else
// the host's own. path "" is no file.
// Errors: those of the files; *canonical.Error or *sandbox.Invalid of the settings.
func Registries(path string) (recipe.Registries, error) {
	var r recipe.Registries
	if path != "" {
		text, err := readBounded(path, recipe.MaxRegistriesBytes)
		if err != nil {
			return r, err
		}
		if r, err = recipe.DecodeRegistries(text); err != nil {
			return r, fmt.Errorf("%s: %w", path, err)
		}
	}
	if r.CABundle != "" {
		text, err := readBounded(r.CABundle, maxBundle)
		r.Authorities = text
		return r, err
	}
	for _, at := range bundles {
		text, err := readBounded(at, maxBundle)
		if err == nil {
			r.Authorities = text
			return r, nil
		}
	}
	return r, errors.New("registries: expected a file of trusted certificates on this host, got none; install ca-certificates, or name one as ca_bundle in a file of --registries")
}

// readBounded reads a regular file of at most so many bytes.
func readBounded(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe in its place is not waited for
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: expected a file, got %s", path, info.Mode().Type())
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s: expected at most %d bytes, got more", path, most)
	}
	return text, err
}

// registries are those of the options, or of the state directory.
func (o Options) registries() (recipe.Registries, error) {
	if o.Registries != nil {
		return *o.Registries, nil
	}
	path := filepath.Join(o.Dir, RegistriesFile)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		path = ""
	}
	return Registries(path)
}

// Packages says why no package can be installed for a machine of o, or nil.
func (o *Opened) Packages(ctx context.Context) error {
	switch {
	case o.Host == nil:
		return &NoPackagesError{o.Name, errors.New("its machines are a simulation; use " + Native)}
	case o.noBuilder != nil:
		return &NoPackagesError{o.Name, o.noBuilder}
	}
	if err := o.Builder.Lacks(ctx); err != nil {
		return &NoPackagesError{o.Name, err}
	}
	return nil
}

// NoPackagesError says that a provider can install no packages here.
type NoPackagesError struct {
	Name string
	Err  error
}

// Error names the provider.
func (e *NoPackagesError) Error() string {
	return e.Name + " installs no packages here: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *NoPackagesError) Unwrap() error { return e.Err }

package all

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/guest/initbin"
	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/image/imagetest"
	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/internal/provider/native/gvisor"
	"github.com/checkfu/checkfu/internal/provider/native/recipe"
	"github.com/checkfu/checkfu/sandbox"
)

// TestMain is a whole machine's kernel where this binary was started as one.
func TestMain(m *testing.M) {
	gvisor.Dispatch()
	os.Exit(m.Run())
}

// A company's own registry: at a private address, behind a certificate of its own,
// reached because the operator pinned it; with the real pip and the real guard. What
// is no wheel is a program, and refused.
func TestPackages_APrivateMirrorOfPip(t *testing.T) {
	if _, err := initbin.Bytes(); err != nil || os.Geteuid() != 0 || Allowlist() != nil {
		t.Skip("needs root, the guest init and the guard")
	}
	archive := imagetest.Debian(t, t.TempDir(), false, "python3-pip")
	l, err := lab.Open(lab.SocketFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	const host, port = "pip.corp.test", 9443
	private := netip.MustParseAddr("10.77.0.10")
	l.Resolver.Script(host, lab.Addresses(private))
	authority := serveIndex(t, l, host, netip.AddrPortFrom(private, port))

	dir := t.TempDir()
	for _, passed := range []string{dir, filepath.Dir(dir)} { // by machines, which run under ids of their own
		if err := os.Chmod(passed, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	store, err := image.Open(filepath.Join(dir, "images"), image.Options{IDBase: native.IDBase})
	if err != nil {
		t.Fatal(err)
	}
	base, err := store.Import(t.Context(), archive)
	if err != nil {
		t.Fatal(err)
	}
	open := func(pins string) *Opened {
		path := filepath.Join(t.TempDir(), "registries.json")
		bundle := filepath.Join(t.TempDir(), "ca.pem")
		text := fmt.Sprintf(`{"v":1,"managers":[{"manager":"pip","mirror":"https://%s:%d/simple/"}],"pins":[%s],"ca_bundle":%q}`, host, port, pins, bundle)
		if err := errors.Join(os.WriteFile(bundle, authority, 0o600), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		r, err := Registries(path)
		if err != nil {
			t.Fatal(err)
		}
		o, err := Open(NativeRunsc, Options{Dir: dir, Images: store, Egress: native.Egress{Resolver: lab.ResolverAddr, Within: l.Guard.Do}, Registries: &r})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := o.Close(); err != nil {
				t.Error(err)
			}
		})
		if err := o.Packages(t.Context()); err != nil {
			t.Skip(err)
		}
		return o
	}
	install := func(o *Opened, packages ...sandbox.Package) (image.Image, error) {
		p := sandbox.Profile{BaseImage: base.Reference, Packages: packages}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		return o.Builder.Materialize(ctx, p, sandbox.Platform{OS: "linux", Architecture: runtime.GOARCH})
	}

	unpinned := open("")
	hello := sandbox.Package{Manager: sandbox.ManagerPip, Name: "hello-wheel", Version: "1.0"}
	_, err = install(unpinned, hello)
	if failed, ok := errors.AsType[*native.BuildError](err); !ok || len(failed.Refused) == 0 || failed.Refused[0].Host != host || failed.Refused[0].Reason != "answer_not_public" {
		t.Errorf("without a pin: %v", err)
	}
	pinned := open(fmt.Sprintf(`{"host":%q,"prefixes":["10.77.0.0/28"]}`, host))
	// The first has code that Python runs whenever it starts: by then both are there.
	derived, err := install(pinned, sandbox.Package{Manager: sandbox.ManagerPip, Name: "eager-wheel"}, hello)
	if err != nil {
		t.Fatal(err)
	}
	root, err := store.Rootfs(t.Context(), derived.Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Release()
	for _, module := range []string{"hello_wheel.py", "eager_wheel.pth"} {
		if found, _ := filepath.Glob(filepath.Join(root.Path, "usr/local/lib/python3*/dist-packages", module)); len(found) != 1 {
			t.Errorf("%s is at %q", module, found)
		}
	}
	if _, err := os.Lstat(filepath.Join(root.Path, "usr/share/ran")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("code of a package ran while another was installed: %v", err)
	}
	_, err = install(pinned, hello, sandbox.Package{Manager: sandbox.ManagerPip, Name: "only-a-program"})
	if failed, ok := errors.AsType[*native.BuildError](err); !ok || failed.Packages[0] != "pip:only-a-program" || !strings.Contains(strings.Join(failed.Output, "\n"), "No matching distribution") {
		t.Errorf("what is no wheel: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "builds", "instances")); err != nil || len(left) != 0 {
		t.Errorf("builds left %v, %v", left, err)
	}
}

// serveIndex serves a simple index in the lab's internet until the test ends, and
// gives the certificate of who vouches for it.
func serveIndex(t *testing.T, l *lab.Lab, host string, at netip.AddrPort) (authority []byte) {
	t.Helper()
	var listener net.Listener
	if err := l.Public.Do(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", at.String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{
		"/files/hello_wheel-1.0-py3-none-any.whl": wheel(t, "hello_wheel", ".py", "print('hello')\n"),
		"/files/eager_wheel-1.0-py3-none-any.whl": wheel(t, "eager_wheel", ".pth", "import os; os.makedirs('/usr/share/ran', exist_ok=True)\n"),
		"/files/only-a-program-1.0.tar.gz":        []byte("never asked for"),
	}
	pages := map[string]string{
		"/simple/hello-wheel/": "hello_wheel-1.0-py3-none-any.whl", "/simple/eager-wheel/": "eager_wheel-1.0-py3-none-any.whl",
		"/simple/only-a-program/": "only-a-program-1.0.tar.gz",
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if content, ok := files[r.URL.Path]; ok {
			w.Write(content)
			return
		}
		name, ok := pages[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!DOCTYPE html><html><body><a href="/files/%s#sha256=%x">%[1]s</a></body></html>`, name, sha256.Sum256(files["/files/"+name]))
	})}
	done := make(chan error, 1)
	go func() {
		done <- server.Serve(tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}}}))
	}()
	t.Cleanup(func() {
		_ = server.Shutdown(context.Background())
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
}

// wheel is a distribution of one file, which has its name.
func wheel(t *testing.T, name, end, content string) []byte {
	t.Helper()
	var b, record bytes.Buffer
	w := zip.NewWriter(&b)
	add := func(name, content string) {
		f, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256([]byte(content))
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(content))
	}
	info := name + "-1.0.dist-info/"
	add(name+end, content)
	add(info+"METADATA", "Metadata-Version: 2.1\nName: "+name+"\nVersion: 1.0\n")
	add(info+"WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
	add(info+"RECORD", record.String()+info+"RECORD,,\n")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// What a file of settings, and what it names, may be.
func TestRegistries(t *testing.T) {
	dir := t.TempDir()
	bundle := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(bundle, []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, says := range map[string]string{
		fmt.Sprintf(`{"v":1,"ca_bundle":%q}`, bundle):              "",
		fmt.Sprintf(`{"v":1,"ca_bundle":%q}`, dir):                 "expected a file",
		`{"v":1,"ca_bundle":"/nowhere/ca.pem"}`:                    "/nowhere/ca.pem",
		`{"v":2}`:                                                  "registries.json: v",
		strings.Repeat(" ", recipe.MaxRegistriesBytes) + `{"v":1}`: "at most",
	} {
		path := filepath.Join(dir, RegistriesFile)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, read := range map[string]func() (recipe.Registries, error){
			"named": func() (recipe.Registries, error) { return Registries(path) },
			"there": Options{Dir: dir}.registries,
		} {
			r, err := read()
			if says == "" && (err != nil || string(r.Authorities) != "mine\n") || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
				t.Errorf("%s, %.60s: %v, want %q", name, text, err, says)
			}
		}
	}
	if _, err := Registries(filepath.Join(dir, "nothing")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	own := &recipe.Registries{Authorities: []byte("given")}
	if r, err := (Options{Dir: dir, Registries: own}).registries(); err != nil || string(r.Authorities) != "given" {
		t.Error(err)
	}
}

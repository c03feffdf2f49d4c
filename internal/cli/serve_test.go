package cli

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/checkfu/checkfu/wire/client"
)

// servingCommands are the words of the scripts about what is served.
var servingCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"cert":    makeCertificate,
	"hang":    neverAnswer,
	"mode":    hasMode,
	"serving": serveInBackground,
	"yes":     answerYes,
}

// serveInBackground runs "serving NAME ARG…": checkfu provider serve ARG…,
// until the script ends or "serving NAME" ends it. NAME is set to the address.
// It must end at SIGTERM with 0.
func serveInBackground(ts *testscript.TestScript, neg bool, args []string) {
	path := ""
	for dir := range strings.SplitSeq(ts.Getenv("PATH"), ":") {
		if at := filepath.Join(dir, "checkfu"); path == "" && exec.Command("test", "-x", at).Run() == nil {
			path = at
		}
	}
	cmd := exec.Command(path, append([]string{"provider", "serve"}, args[1:]...)...)
	cmd.Dir = ts.Getenv("WORK")
	cmd.Env = append(os.Environ(), "CHECKFU_STATE="+ts.Getenv("CHECKFU_STATE"))
	said, err := os.Create(filepath.Join(cmd.Dir, args[0]+".stderr"))
	ts.Check(err)
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	late := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	late.Stop()
	address, ok := strings.CutPrefix(line, "READY ")
	if err != nil || !ok {
		_ = cmd.Wait()
		ts.Fatalf("no READY line: %q, %v: %s", line, err, ts.ReadFile(args[0]+".stderr"))
	}
	ts.Setenv(args[0], strings.TrimSpace(address))
	ts.Defer(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		late := time.AfterFunc(40*time.Second, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		if err := cmd.Wait(); err != nil {
			data, _ := os.ReadFile(said.Name())
			ts.Fatalf("serve ended with %v: %s", err, data)
		}
		_ = said.Close()
	})
}

// answerYes runs an HTTP server that says 200 to everything and sets a variable
// to its address.
func answerYes(ts *testscript.TestScript, _ bool, args []string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("yes")) }))
	ts.Defer(s.Close)
	ts.Setenv(args[0], s.URL)
}

// neverAnswer takes connections at a unix socket and says nothing.
func neverAnswer(ts *testscript.TestScript, _ bool, args []string) {
	l, err := net.Listen("unix", ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
}

// makeCertificate makes NAME.pem and NAME.key for 127.0.0.1 and sets NAME to the
// pin.
func makeCertificate(ts *testscript.TestScript, _ bool, args []string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	ts.Check(err)
	leaf, err := x509.ParseCertificate(der)
	ts.Check(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	ts.Setenv(args[0], string(client.PublicKeyDigest(leaf)))
}

// hasMode asks that a file has a mode: "mode 0600 FILE".
func hasMode(ts *testscript.TestScript, _ bool, args []string) {
	info, err := os.Lstat(ts.MkAbs(args[1]))
	ts.Check(err)
	if got := info.Mode().Perm().String(); got != args[0] {
		ts.Fatalf("%s: mode %s, want %s", args[1], got, args[0])
	}
}

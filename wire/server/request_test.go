package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/server/logstore"
)

// raw sends a JSON body as it is.
func (f *fixture) raw(e wire.Endpoint, body string, change func(*http.Request)) response {
	f.Helper()
	r := f.request(f.Context(), e, "", strings.NewReader(body), int64(len(body)))
	if change != nil {
		change(r)
	}
	return f.do(r)
}

func TestW08ToW13AMalformedBodyChangesNothing(t *testing.T) {
	f := newFixture(t, nil)
	for name, body := range map[string]string{
		"W08 duplicate key":   `{"instance_id":"a","instance_id":"b"}`,
		"W09 other case":      `{"Instance_Id":"a"}`,
		"W10 unknown key":     `{"instance_id":"a","x":1}`,
		"W11 null":            `{"instance_id":null}`,
		"W12 number for text": `{"instance_id":1.0}`,
		"W13 byte order mark": "\xef\xbb\xbf" + `{"instance_id":"a"}`,
		"W13 lone surrogate":  `{"instance_id":"\ud800"}`,
		"W13 depth":           strings.Repeat("[", 17) + strings.Repeat("]", 17),
		"nothing":             ``,
		"half":                `{"instance_id":"a"`,
		"two":                 `{"instance_id":"a"}{}`,
	} {
		t.Run(name, func(t *testing.T) { f.wantTag(f.raw(wire.Destroy, body, nil), wire.TagMalformed) })
	}
	for name, body := range map[string]string{
		"1.0": `1.0`, "1e0": `1e0`, "-0": `-0`, "2^53": `9007199254740992`, "null list": `null`,
	} {
		r := `{"instance_id":"i","root":"/a","max_entries":` + body + `}`
		t.Run("W12 "+name, func(t *testing.T) { f.wantTag(f.raw(wire.ListDir, r, nil), wire.TagMalformed) })
	}
	if len(f.s.journal.ops) != 0 {
		t.Errorf("%d operations", len(f.s.journal.ops))
	}
}

func TestW16HeadersAndBodyMustNameOneLease(t *testing.T) {
	f := newFixture(t, nil)
	for field, change := range map[string]func(*wire.ProvisionRequest){
		"lease_id":    func(r *wire.ProvisionRequest) { r.LeaseID = "other" },
		"lease_epoch": func(r *wire.ProvisionRequest) { r.LeaseEpoch++ },
	} {
		r := provisionRequest()
		change(&r)
		if e := f.wantTag(f.call(wire.Provision, "", r), wire.TagMalformed); e.Pointer != field {
			t.Errorf("%s: %q", field, e.Pointer)
		}
	}
	f.census(0)
}

func TestW17OnlyATokenOpens(t *testing.T) {
	second := "fedcba9876543210fedcba9876543210"
	f := newFixture(t, func(o *Options) { o.Tokens = []string{token, second} })
	for name, c := range map[string]struct {
		values []string
		tag    wire.Tag
	}{
		"none":         {nil, wire.TagUnauthenticated},
		"wrong":        {[]string{"Bearer " + strings.Repeat("x", 32)}, wire.TagUnauthenticated},
		"prefix":       {[]string{"Bearer " + token[:31]}, wire.TagUnauthenticated},
		"longer":       {[]string{"Bearer " + token + "0"}, wire.TagUnauthenticated},
		"other scheme": {[]string{"Basic " + token}, wire.TagUnauthenticated},
		"twice":        {[]string{"Bearer " + token, "Bearer " + token}, wire.TagUnauthenticated},
		"first":        {[]string{"Bearer " + token}, ""},
		"second":       {[]string{"Bearer " + second}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{wire.Capabilities.Path(), "/v1/nothing", "/"} {
				r := f.raw(wire.Capabilities, "{}", func(r *http.Request) {
					r.Header.Del(wire.HeaderAuthorization)
					for _, v := range c.values {
						r.Header.Add(wire.HeaderAuthorization, v)
					}
					r.URL.Path = path
				})
				switch {
				case c.tag != "":
					f.wantTag(r, c.tag) // also where there is nothing at that path
				case path == wire.Capabilities.Path():
					ok[wire.CapabilitiesResponse](f, r)
				default:
					f.wantTag(r, wire.TagMemberUnknown)
				}
			}
		})
	}
}

func TestW17OnlyAPinnedCertificateOpens(t *testing.T) {
	now := time.Now()
	good, goodKey := certificate(t, now.Add(-time.Hour), now.Add(time.Hour))
	expired, expiredKey := certificate(t, now.Add(-2*time.Hour), now.Add(-time.Hour))
	other, _ := certificate(t, now.Add(-time.Hour), now.Add(time.Hour))
	s, err := New(Options{Provider: memory.New(memory.Options{}), ClientKeys: [][32]byte{goodKey, expiredKey}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, l, s, &tls.Config{Certificates: []tls.Certificate{good}}) }()
	for name, c := range map[string]struct {
		cert   []tls.Certificate
		status int
	}{"none": {nil, 401}, "pinned": {[]tls.Certificate{good}, 200}, "expired": {[]tls.Certificate{expired}, 401}, "other": {[]tls.Certificate{other}, 403}} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %v", name, http2), func(t *testing.T) {
				tr := &http.Transport{ForceAttemptHTTP2: http2, TLSClientConfig: &tls.Config{Certificates: c.cert, InsecureSkipVerify: true}} //nolint:gosec // a test's own server
				defer tr.CloseIdleConnections()
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+l.Addr().String()+wire.Capabilities.Path(), nil)
				wire.RequestHeader{}.Set(r.Header, wire.Capabilities)
				got, err := (&http.Client{Transport: tr}).Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer got.Body.Close()
				if got.StatusCode != c.status || (got.ProtoMajor == 2) != http2 {
					t.Errorf("status %d over %s, want %d", got.StatusCode, got.Proto, c.status)
				}
			})
		}
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func certificate(t *testing.T, from, until time.Time) (tls.Certificate, [32]byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: from, NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
}

func TestW18AnotherRevisionIsUnsupported(t *testing.T) {
	f := newFixture(t, nil)
	r := f.raw(wire.Capabilities, "{}", func(r *http.Request) { r.Header.Set(wire.HeaderWire, "checkfu.sandbox-wire.v2") })
	if e := f.wantTag(r, wire.TagUnsupported); len(e.Supported) != 1 || e.Supported[0] != wire.Revision {
		t.Errorf("%q", e.Supported)
	}
}

func TestARequestIsRefusedBeforeItsBodyIsRead(t *testing.T) {
	f := newFixture(t, nil)
	for name, c := range map[string]struct {
		head string
		tag  wire.Tag
	}{
		"W21 too long":      {"POST /v1/write_file HTTP/1.1\r\nContent-Length: 999999999\r\nContent-Type: " + wire.MediaFrames, wire.TagPayloadTooLarge},
		"chunked":           {"POST /v1/write_file HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Type: " + wire.MediaFrames, wire.TagMalformed},
		"query":             {"POST /v1/write_file?x=1 HTTP/1.1\r\nContent-Length: 1\r\nContent-Type: " + wire.MediaFrames, wire.TagMalformed},
		"method":            {"PUT /v1/write_file HTTP/1.1\r\nContent-Length: 1\r\nContent-Type: " + wire.MediaFrames, wire.TagMalformed},
		"media":             {"POST /v1/write_file HTTP/1.1\r\nContent-Length: 1\r\nContent-Type: text/plain", wire.TagMalformed},
		"W06 encoding":      {"POST /v1/write_file HTTP/1.1\r\nContent-Length: 1\r\nContent-Encoding: gzip\r\nContent-Type: " + wire.MediaFrames, wire.TagMalformed},
		"path":              {"POST /v1/write_file/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Type: " + wire.MediaFrames, wire.TagMemberUnknown},
		"escaped path":      {"POST /v1/write%5ffile HTTP/1.1\r\nContent-Length: 1\r\nContent-Type: " + wire.MediaFrames, wire.TagMemberUnknown},
		"W87 no lease":      {"POST /v1/activate HTTP/1.1\r\nContent-Length: 1\r\nContent-Type: " + wire.MediaJSON, wire.TagMalformed},
		"get of another":    {"GET /v1/activate HTTP/1.1\r\nContent-Type: " + wire.MediaJSON, wire.TagMalformed},
		"lease where none":  {"POST /v1/capabilities HTTP/1.1\r\nContent-Length: 2\r\nContent-Type: " + wire.MediaJSON, wire.TagMalformed},
		"too many headers?": {"POST /v1/write_file HTTP/1.1\r\nContent-Length: 1\r\n" + wire.HeaderLeaseID + ": m\r\nContent-Type: " + wire.MediaFrames, wire.TagMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			conn := f.dial()
			lease := wire.HeaderLeaseID + ": l\r\n" + wire.HeaderLeaseEpoch + ": 1\r\n" + wire.HeaderOperationID + ": " + string(wire.NewOperationID()) + "\r\n"
			if strings.HasPrefix(name, "W87") {
				lease = ""
			}
			_, err := io.WriteString(conn, c.head+"\r\nHost: x\r\n"+lease+wire.HeaderWire+": "+wire.Revision+"\r\nAuthorization: Bearer "+token+"\r\n\r\n")
			f.must(err)
			// Not a byte of the body was sent.
			f.must(conn.SetReadDeadline(time.Now().Add(10 * time.Second)))
			got, err := http.ReadResponse(bufio.NewReader(conn), nil)
			f.must(err)
			defer got.Body.Close()
			body, err := io.ReadAll(got.Body)
			f.must(err)
			f.wantTag(response{got.StatusCode, got.Header, body}, c.tag)
		})
	}
}

func TestW20ABodyThatDribblesIsCut(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Stall = 50 * time.Millisecond })
	conn := f.dial()
	_, err := io.WriteString(conn, "POST /v1/capabilities HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nContent-Type: "+wire.MediaJSON+"\r\n"+
		wire.HeaderWire+": "+wire.Revision+"\r\nAuthorization: Bearer "+token+"\r\n\r\n{")
	f.must(err)
	f.must(conn.SetReadDeadline(time.Now().Add(10 * time.Second)))
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Errorf("not closed: %v", err)
	}
}

func TestAFullServerIsOverloaded(t *testing.T) {
	h, entered, gate := &hooked{}, make(chan struct{}), make(chan struct{})
	h.write = func(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
		close(entered)
		<-gate
		return h.Provider.WriteFile(ctx, id, w)
	}
	f := newFixture(t, func(o *Options) { hook(h)(o); o.MaxCalls = 1 })
	id := f.provision("").Value.InstanceID
	done := make(chan response, 1)
	go func() {
		done <- f.call(wire.WriteFile, "", wire.FileCall{InstanceID: id, Path: "/mnt/rw/a", Digest: digestOf(nil)})
	}()
	<-entered
	if e := f.wantTag(f.call(wire.Capabilities, "", wire.Empty{}), wire.TagOverloaded); !e.Retryable() || e.RetryAfterMS == 0 {
		t.Errorf("%+v", e)
	}
	close(gate)
	ok[wire.Empty](f, <-done)
	ok[wire.CapabilitiesResponse](f, f.call(wire.Capabilities, "", wire.Empty{}))
}

func TestOptionsAreChecked(t *testing.T) {
	good := func() Options { return Options{Provider: memory.New(memory.Options{}), Tokens: []string{token}} }
	for name, change := range map[string]func(*Options){
		"no provider":   func(o *Options) { o.Provider = nil },
		"no access":     func(o *Options) { o.Tokens = nil },
		"short token":   func(o *Options) { o.Tokens = []string{"short"} },
		"three tokens":  func(o *Options) { o.Tokens = []string{token, token, token} },
		"small window":  func(o *Options) { o.OutputWindow = 1 },
		"large buffer":  func(o *Options) { o.InputBuffer = 1 << 30 },
		"no heartbeat":  func(o *Options) { o.Heartbeat = time.Nanosecond },
		"long wait":     func(o *Options) { o.MaxWait = time.Hour },
		"negative":      func(o *Options) { o.MaxCalls = -1 },
		"a file as dir": func(o *Options) { o.Journal = logstore.At(os.Args[0]) },
		"dead provider": func(o *Options) { o.Provider = dead{o.Provider} },
		"liar": func(o *Options) {
			o.Provider = &hooked{Provider: o.Provider, caps: func(c sandbox.Capabilities) sandbox.Capabilities { c.Provider = "\xff\x00"; return c }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := good()
			change(&o)
			if s, err := New(o); err == nil {
				t.Error("accepted", errors.Join(s.Close(t.Context())))
			}
		})
	}
}

type dead struct{ sandbox.Provider }

func (dead) Capabilities(context.Context) (sandbox.Capabilities, error) {
	return sandbox.Capabilities{}, errors.New("dead")
}

func TestListenIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for range 2 { // the second replaces what the first left
		l, err := Listen(t.Context(), "unix:"+path)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		if _, err := Listen(t.Context(), "unix:"+path); err == nil {
			t.Error("two listen on one socket")
		}
		s, err := New(Options{Provider: memory.New(memory.Options{}), Authenticate: Anybody})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- Serve(ctx, l, s, nil) }()
		tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}}
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://unix"+wire.Capabilities.Path(), nil)
		wire.RequestHeader{}.Set(r.Header, wire.Capabilities)
		got, err := (&http.Client{Transport: tr}).Do(r)
		if err != nil || got.StatusCode != 200 {
			t.Fatalf("%v, %v", got, err)
		}
		got.Body.Close()
		tr.CloseIdleConnections()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
	// A token never crosses a network in the clear.
	f := newFixture(t, nil)
	l := public{}
	if err := Serve(t.Context(), l, f.s, nil); err == nil {
		t.Error("served in the clear")
	}
}

type public struct{ net.Listener }

func (public) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }
func (public) Close() error   { return nil }

var _ = bytes.NewReader

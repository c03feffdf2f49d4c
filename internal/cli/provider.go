package cli

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire/client"
	"github.com/checkfu/checkfu/wire/server"
	"github.com/checkfu/checkfu/wire/server/logstore"
)

// The environment in which a program is started that is to serve a provider:
// where it must listen, the token of its caller, and a directory that is the
// same when it is started again.
const (
	envListen = "CHECKFU_LISTEN"
	envToken  = "CHECKFU_TOKEN"
	envState  = "CHECKFU_STATE"
)

func (a *app) providerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "provider", Short: "Serve a provider to Runners elsewhere",
		Example: "  checkfu provider serve --provider native --listen unix:/run/checkfu/native.sock",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return argument.Unexpected("provider", "serve", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.serveCommand())
	return cmd
}

// serveFlags are what a person says about a server.
type serveFlags struct {
	provider  string
	listen    string
	tokenFile string
	cert, key string
	pins      []string
	warm      int
}

// maxWarm bounds --warm: a host is given to those who ask, not to those who may.
const maxWarm = 64

func (a *app) serveCommand() *cobra.Command {
	f := &serveFlags{}
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve a built-in provider over the wire", Args: noArguments,
		Long: `Serve a provider to Runners over HTTP. When it can be called, one line on
standard output says where: READY and the address.

Without a certificate only this machine is served: a unix socket that only its
owner can open, or a loopback address. --token-file holds one token a line, two
while one replaces the other; it is made when it is missing, and refused when
others can read it. On a unix socket it may be left out.

What a provider of this program enforces is advertised as provider_attested: no
Runner can see over a wire that it is its own code. The memory provider also
leaves allowlists out, whose connections exist only in its own memory.

What is served lies beside the runs and sessions of this state directory: no
caller sees or sweeps those. Callers of one server, and servers of one provider in
one state directory, are one account: cleanup of one can sweep snapshots of another.

--warm keeps that many machines started ahead for each of the four kinds of request
that were made last: a request like one of them (image, limits, mounts, network) is
given one, in a fraction of the time. Nothing of one caller is ever in the machine of
another, but a caller can tell from the time that somebody asked for the like. They
hold 512 MiB at most, and end when nobody has asked for ten minutes.

SIGTERM lets calls end (at most 30 s), then removes every machine; machines
never outlive the server that owns them. A second signal ends it at once.`,
		Example: `  checkfu provider serve --provider native --listen unix:/run/checkfu.sock
  checkfu provider serve --provider memory --listen 127.0.0.1:0 --token-file token
  checkfu provider serve --listen :8443 --tls-cert cert.pem --tls-key key.pem --token-file token`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.provider, "provider", all.Native, "native, native:runc or memory")
	flags.StringVar(&f.listen, "listen", "", "unix:PATH or HOST:PORT, port 0 for any (default $"+envListen+")")
	flags.StringVar(&f.tokenFile, "token-file", "", "file of the bearer tokens, made with mode 0600 when missing (default the token in $"+envToken+")")
	flags.StringVar(&f.cert, "tls-cert", "", "certificate chain in PEM; makes it https")
	flags.StringVar(&f.key, "tls-key", "", "private key of the certificate in PEM")
	flags.StringArrayVar(&f.pins, "client-pin", nil, "sha256:… of the public key of a client certificate that may call, may be repeated; beside a token both are asked for")
	flags.IntVar(&f.warm, "warm", 0, "machines to keep started ahead for each kind of request, with native; 0 keeps none")
	return cmd
}

// service is a server that can be started.
type service struct {
	address string
	options server.Options
	tls     *tls.Config
}

// service checks everything that can be wrong before anything is opened.
// Errors: *argument.Error.
func (f *serveFlags) service() (s service, err error) {
	s.address = f.listen
	if s.address == "" {
		s.address = os.Getenv(envListen)
	}
	path, unix := strings.CutPrefix(s.address, "unix:")
	host, _, splitErr := net.SplitHostPort(s.address)
	if unix && path == "" || !unix && splitErr != nil {
		return s, argument.Unexpected("--listen", "unix:PATH or HOST:PORT", s.address)
	}
	if unix && strings.IndexByte(path, 0) >= 0 || len(path) > maxSocketPath {
		return s, argument.Wrong("--listen: expected a path of at most %d bytes after unix:, got %d", maxSocketPath, len(path))
	}
	if (f.cert == "") != (f.key == "") {
		return s, argument.Wrong("--tls-cert, --tls-key: expected both or neither")
	}
	switch {
	case f.cert != "" && unix:
		return s, argument.Wrong("--tls-cert: expected HOST:PORT in --listen beside it, got %q", s.address)
	case f.cert == "" && len(f.pins) > 0:
		return s, argument.Wrong("--client-pin: expected --tls-cert and --tls-key beside it")
	case f.cert == "" && !unix && !isLoopback(host):
		return s, argument.Unexpected("--listen", "unix:PATH or a loopback address where there is no --tls-cert: a token is never taken in the clear from a network", s.address)
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return s, argument.Wrong("--tls-cert, --tls-key: %v", err)
		}
		s.tls = &tls.Config{Certificates: []tls.Certificate{pair}}
	}
	for _, pin := range f.pins {
		sum, err := hex.DecodeString(strings.TrimPrefix(pin, "sha256:"))
		if err != nil || !sandbox.Digest(pin).Valid() {
			return s, argument.Unexpected("--client-pin", "sha256: and 64 lower-case hex digits", pin)
		}
		s.options.ClientKeys = append(s.options.ClientKeys, [32]byte(sum))
	}
	switch {
	case f.tokenFile != "":
		s.options.Tokens, err = readTokens(f.tokenFile, true)
	case os.Getenv(envToken) != "":
		s.options.Tokens, err = parseTokens(envToken, os.Getenv(envToken))
	case len(s.options.ClientKeys) > 0:
	case unix:
		s.options.Authenticate = server.Anybody
	default:
		err = argument.Wrong("--token-file: expected one: whoever reaches %s could use the provider", s.address)
	}
	return s, err
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (a *app) serve(ctx context.Context, f *serveFlags) (err error) {
	name, err := all.Canonical(f.provider)
	if err != nil {
		return argument.Wrong("--provider: %v", err)
	}
	switch {
	case f.warm < 0 || f.warm > maxWarm:
		return argument.Wrong("--warm: expected 0 to %d, got %d", maxWarm, f.warm)
	case f.warm > 0 && name == all.Memory:
		return argument.Wrong("--warm: expected a provider with machines beside it, got %s", name)
	}
	s, err := f.service()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // the second signal ends the process
	opened, note, err := a.openServed(ctx, name, f.warm, &s.options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeOwn(opened), opened.Close()) }()
	s.options.Provider, s.options.Log = opened.Provider, a.complain
	srv, err := server.New(s.options)
	if err != nil {
		return err
	}
	l, err := server.Listen(ctx, s.address)
	if err != nil {
		return errors.Join(argument.Wrong("--listen: %v", err), srv.Close(ctx))
	}
	ready := "READY " + base(s.address, l, s.tls != nil) + "\n"
	if s.tls != nil {
		note += "; --tls-pin " + string(client.PublicKeyDigest(s.tls.Certificates[0].Leaf))
	}
	fmt.Fprintf(a.stderr, "checkfu: serving %s%s\n", name, note)
	if err := a.print([]byte(ready)); err != nil {
		return errors.Join(err, l.Close(), srv.Close(ctx))
	}
	return server.Serve(ctx, l, srv, s.tls)
}

// openServed opens a provider to be served, and says what a caller must know of
// it. What a caller's cleanup sweeps has an area of its own: a person's sessions are
// in no caller's list of pins. The journal lies beside what it speaks of, and nowhere
// where that is nowhere.
func (a *app) openServed(ctx context.Context, name string, warm int, o *server.Options) (*all.Opened, string, error) {
	if name == all.Memory {
		opened, err := all.Open(name, all.Options{Served: true})
		return opened, "", err
	}
	dir, err := a.usableState()
	if err != nil {
		return nil, "", err
	}
	store, err := openStore(dir, a.progress(true))
	if err != nil {
		return nil, "", err
	}
	opened, err := all.Open(name, all.Options{
		Dir: dir, Area: all.AreaServed, Images: store, Served: true, Warm: native.Warm{Each: warm, Failed: a.complain},
	})
	if err != nil {
		return nil, "", err
	}
	o.Journal = logstore.At(filepath.Join(dir, "wire-"+strings.ReplaceAll(name, ":", "-")))
	if image, err := resolveImage(ctx, store, ""); err == nil {
		return opened, "; --image " + image, nil
	}
	return opened, "; no image called " + defaultImage + " yet: see checkfu image ls", nil
}

// base is where a listener can be reached.
func base(address string, l net.Listener, secure bool) string {
	switch {
	case strings.HasPrefix(address, "unix:"):
		return address
	case secure:
		return "https://" + l.Addr().String()
	}
	return "http://" + l.Addr().String()
}

// removeOwn destroys what this process owns, but for what waits, which ends with the
// provider. It would die with it; so it is also gone from the disk.
func removeOwn(o *all.Opened) error {
	if o.Host == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	list, err := o.Host.List(ctx)
	for _, m := range list {
		if m.Owned && !m.Waits && m.OwnerPID == int64(os.Getpid()) {
			err = errors.Join(err, o.Provider.Destroy(ctx, m.InstanceID))
		}
	}
	return err
}

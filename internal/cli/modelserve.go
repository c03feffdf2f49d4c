package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/controlplane/gateway"
	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/sandbox"
)

// upstreamFlags say where requests of one style go, and with which key.
type upstreamFlags struct{ style, url, keyFile, keyEnv string }

func (f *upstreamFlags) add(flags *pflag.FlagSet, style, url string) {
	f.style = style
	flags.StringVar(&f.keyFile, style+"-key-file", "", "file with the key of the "+style+" API, mode 0600")
	flags.StringVar(&f.keyEnv, style+"-key-env", "", "name of the variable with that key")
	flags.StringVar(&f.url, style+"-url", url, "where requests of that API go")
}

// key reads the key; ok is false where none is named.
// Errors: *argument.Error, which never holds what was read.
func (f *upstreamFlags) key() (k gateway.Key, ok bool, err error) {
	switch {
	case f.keyFile != "" && f.keyEnv != "":
		return k, false, argument.Wrong("--%s-key-file: expected no --%s-key-env beside it, got both", f.style, f.style)
	case f.keyFile != "":
		if k, err = gateway.ReadKeyFile(f.keyFile); err != nil {
			return k, false, argument.Wrong("--%s-key-file: %v", f.style, err)
		}
		return k, true, nil
	case f.keyEnv != "":
		// The name is in a message, and a person may have given the key instead.
		if sandbox.CheckEnvironment(f.keyEnv, "") != nil {
			return k, false, argument.Wrong("--%s-key-env: expected the name of a variable, got something else", f.style)
		}
		value, set := os.LookupEnv(f.keyEnv)
		if !set {
			return k, false, argument.Wrong("--%s-key-env: expected the name of a variable that is set", f.style)
		}
		if k, err = gateway.ReadKey(strings.NewReader(value), f.keyEnv); err != nil {
			return k, false, argument.Wrong("--%s-key-env: %v", f.style, err)
		}
		return k, true, os.Unsetenv(f.keyEnv)
	}
	return k, false, nil
}

type modelServeFlags struct {
	name, listen      string
	anthropic, openai upstreamFlags
	asJSON            bool
}

func (a *app) modelServeCommand() *cobra.Command {
	f := &modelServeFlags{}
	cmd := &cobra.Command{
		Use: "serve", Short: "Be the model gateway of this host: hold the keys, lease their use", Args: noArguments,
		Long: `Serve models to the machines of this host. The keys are read once and are in
this process's memory alone; machines hold a token of their run instead, which
is good for as long as the machine and for nothing but five shapes of request
(docs/models.md). When it can be called, one line on standard output says so:
READY, its name and the address for relays.

A key comes from a file that only this user can read, or from a variable that is
named; it is never an argument. Prefer the file: the variable stays in what the
kernel shows of this process to its user. At least one key is needed, and each
API is served whose key there is. An upstream is https, or http on a literal
loopback address.

Leases, their epochs and what was used lie below the state directory and outlive
this process. Requests do not: when it ends they are cut. SIGTERM ends it in
order. Its log, a line for each request without a key, token, header or body, is
model/NAME/own/log below the state directory; at 32 MiB it is put aside as log.1.`,
		Example: `  checkfu model serve --anthropic-key-file key
  checkfu model serve --name team --openai-key-env OPENAI_API_KEY --openai-url https://router.example
  checkfu model serve --anthropic-key-file key --listen 127.0.0.1:8129 --json`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.modelServe(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", defaultGateway, "its name, by which --model finds it; 1 to 40 letters, digits, - or _")
	flags.StringVar(&f.listen, "listen", "", "where relays reach it: unix:PATH, or a literal loopback address and a port, 0 for any (default a socket below the state directory)")
	f.anthropic.add(flags, "anthropic", "https://api.anthropic.com")
	f.openai.add(flags, "openai", "https://api.openai.com")
	flags.BoolVar(&f.asJSON, "json", false, "print the READY line as canonical JSON")
	return cmd
}

// modelReady is the READY line of --json.
type modelReady struct {
	Schema    string   `json:"schema"`
	Name      string   `json:"name"`
	Control   string   `json:"control"` // for --model
	Gateway   string   `json:"gateway"` // for relays
	Log       string   `json:"log"`
	Upstreams []string `json:"upstreams"`
}

// options are the upstreams and their keys.
// Errors: *argument.Error.
func (f *modelServeFlags) options() (o gateway.Options, err error) {
	if keeper.CheckID(f.name) != nil {
		return o, argument.Unexpected("--name", "1 to 40 letters, digits, - or _, the first a letter or digit", f.name)
	}
	o.Keys = map[route.Style]gateway.Key{}
	for _, u := range []*upstreamFlags{&f.anthropic, &f.openai} {
		key, ok, err := u.key()
		if err != nil {
			return o, err
		}
		if ok {
			style := route.Style(u.style)
			o.Upstreams = append(o.Upstreams, gateway.Upstream{Style: style, URL: u.url})
			o.Keys[style] = key
		}
	}
	if len(o.Upstreams) == 0 {
		return o, argument.Wrong("--anthropic-key-file, --openai-key-file: expected a key, got none: name a file, or a variable with --anthropic-key-env or --openai-key-env")
	}
	return o, nil
}

func (a *app) modelServe(ctx context.Context, f *modelServeFlags) (err error) {
	// A core, or a process of the same user that attaches, would have the keys.
	if err := errors.Join(unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0), unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})); err != nil {
		return err
	}
	o, err := f.options()
	if err != nil {
		return err
	}
	state, err := a.usableState()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // the second signal ends the process
	at := modelAt(state, f.name)
	if err := at.make(); err != nil {
		return err
	}
	store, err := gateway.OpenStore(at.leases(), nil)
	if errors.Is(err, gateway.ErrHeld) {
		return argument.Unexpected("--name", "the name of no gateway that runs (see checkfu model status)", f.name)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	log, err := gateway.OpenLog(at.log())
	if err != nil {
		return err
	}
	defer log.Close()
	o.Leases, o.Counts, o.Log = store, store, log
	g, err := gateway.New(o)
	if invalid, ok := errors.AsType[*sandbox.Invalid](err); ok {
		return argument.Wrong("--%s-url: expected %s, got %q", strings.TrimPrefix(invalid.Field, "upstream."), invalid.Expected, invalid.Got)
	}
	if err != nil {
		return err
	}
	requests, address, err := at.listen(f.listen)
	if err != nil {
		return err
	}
	control, err := listenFile("--state", at.control(), 0o600)
	if err != nil {
		return errors.Join(err, requests.Close())
	}
	ready := modelReady{Schema: "checkfu.model-gateway.v1", Name: f.name, Control: at.control(), Gateway: address, Log: at.log(), Upstreams: []string{}}
	for _, u := range o.Upstreams {
		ready.Upstreams = append(ready.Upstreams, string(u.Style)+" "+u.URL)
	}
	if err := a.sayReady(ready, f.asJSON); err != nil {
		return errors.Join(err, requests.Close(), control.Close())
	}
	return serveModels(ctx, g, requests, &gateway.Control{Gateway: g, Store: store, Address: address}, control)
}

func (a *app) sayReady(r modelReady, asJSON bool) error {
	if asJSON {
		return a.printJSON(r)
	}
	fmt.Fprintf(a.stderr, "checkfu: model gateway %s: %s\n", r.Name, strings.Join(r.Upstreams, ", "))
	return a.print([]byte("READY " + r.Name + " " + r.Gateway + "\n"))
}

// serveModels serves both listeners until ctx ends or one of them fails.
func serveModels(ctx context.Context, g *gateway.Gateway, requests net.Listener, c *gateway.Control, control net.Listener) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ends := make(chan error, 2)
	go func() { ends <- g.Serve(ctx, requests) }()
	go func() { ends <- c.Serve(ctx, control) }()
	first := <-ends
	stop() // one without the other is no gateway
	return errors.Join(first, <-ends)
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/controlplane/gateway"
	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/sandbox"
)

// modelCommand is what concerns the model route.
func (a *app) modelCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "model", Short: "Serve models to machines that hold no key",
		Long: `A machine that is made with --model holds a run token instead of a key, and a
base URL that leads to a relay of its own. The relay leads to a model gateway,
which is a process of this host that holds the keys: checkfu model serve.`,
		Example: "  checkfu model serve --anthropic-key-file key &\n  checkfu run --repo . --model default -- ./agent\n  checkfu model status",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return argument.Unexpected("model", "serve or status", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.modelServeCommand(), a.modelStatusCommand())
	return cmd
}

// defaultGateway is the name of a gateway where none is given.
const defaultGateway = "default"

// operator is the control of the gateway that a person named: by its name, by the
// path of its control, or of its directory.
// Errors: *argument.Error.
func (a *app) operator(flag, named string) (gateway.Operator, error) {
	if !strings.Contains(named, "/") {
		if keeper.CheckID(named) != nil {
			return gateway.Operator{}, argument.Unexpected(flag, "the name of a model gateway, or the path of its control", named)
		}
		state, err := a.stateDir()
		return gateway.Operator{Socket: modelAt(state, named).control()}, err
	}
	path, err := filepath.Abs(named)
	if err != nil || strings.IndexByte(path, 0) >= 0 {
		return gateway.Operator{}, argument.Unexpected(flag, "the path of a model gateway's control", named)
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = modelPlace{path}.control()
	}
	return gateway.Operator{Socket: path}, nil
}

// modelStatus asks a gateway, and says what to do where none answers.
func (a *app) modelStatus(ctx context.Context, flag, named string) (gateway.Operator, gateway.Status, error) {
	o, err := a.operator(flag, named)
	if err != nil {
		return o, gateway.Status{}, err
	}
	s, err := o.Status(ctx)
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, fs.ErrPermission):
		err = argument.Wrong("%s: expected a gateway of this user, got %q (%v): run checkfu as the user who serves it", flag, named, err)
	default:
		err = argument.Wrong("%s: expected a model gateway that runs, got %q (%v): start one with checkfu model serve", flag, named, err)
	}
	return o, s, err
}

// modelRoute leases a model route to the machines of one provider.
type modelRoute struct {
	operator gateway.Operator

	mu         sync.Mutex
	ended      *gateway.Ended
	err        error
	relayEnded bool
}

// route prepares what --model asks for; nil is no route.
// Errors: *argument.Error, where no gateway answers or the environment would go
// around it.
func (a *app) route(ctx context.Context, named string, environment map[string]string) (*modelRoute, error) {
	if named == "" {
		return nil, nil
	}
	if err := checkModelEnv(environment); err != nil {
		return nil, err
	}
	o, _, err := a.modelStatus(ctx, "--model", named)
	if err != nil {
		return nil, err
	}
	return &modelRoute{operator: o}, nil
}

// checkModelEnv refuses a key or a base URL beside a model route, which sets them.
func checkModelEnv(environment map[string]string) error {
	for _, key := range native.ModelKeys() {
		if _, ok := environment[key]; ok {
			return argument.Wrong("--env: expected no %s beside a model route, which sets it: the command gets a run token in the key's place", key)
		}
	}
	return nil
}

// leases is the route as a provider asks for it; nil is none.
func (m *modelRoute) leases() func(context.Context, sandbox.ProvisionRequest) (*native.Lease, error) {
	if m == nil {
		return nil
	}
	return m.lease
}

// control is the path by which a keeper finds the gateway; "" is no route.
func (m *modelRoute) control() string {
	if m == nil {
		return ""
	}
	return m.operator.Socket
}

// lease asks the gateway for the lease of one machine: that of its Run.
func (m *modelRoute) lease(ctx context.Context, r sandbox.ProvisionRequest) (*native.Lease, error) {
	g, err := m.operator.Lease(ctx, gateway.Asked{RunID: r.RunID, LeaseID: r.LeaseID, LeaseEpoch: r.LeaseEpoch, ExpiresAt: r.ExpiresAt})
	if err != nil {
		return nil, err
	}
	l := &native.Lease{Gateway: g.Gateway, Token: g.Token}
	l.End = func(ctx context.Context) {
		m.end(ctx, gateway.Ending{LeaseID: r.LeaseID, LeaseEpoch: r.LeaseEpoch})
		m.mu.Lock()
		defer m.mu.Unlock()
		m.relayEnded = l.RelayEnded
	}
	return l, nil
}

// leaseEndBound is how long the end of a lease is waited for, whatever became of the
// context of what ended.
const leaseEndBound = 15 * time.Second

// end ends the lease and keeps its last count. The first answer stands.
func (m *modelRoute) end(ctx context.Context, e gateway.Ending) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseEndBound)
	defer cancel()
	ended, err := m.operator.End(ctx, e)
	if m.err = err; err == nil {
		m.ended = &ended
	}
}

// counts is what the Run used, for its Record; nil is no route.
func (m *modelRoute) counts() func(context.Context) (runner.Model, error) {
	if m == nil {
		return nil
	}
	return func(context.Context) (runner.Model, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		switch {
		case m.ended != nil:
			u := m.ended.Used
			return runner.Model{
				Requests: u.Requests, InputTokens: u.InputTokens, CachedTokens: u.CachedTokens, OutputTokens: u.OutputTokens,
				Estimated: u.Estimated, UpBytes: u.UpBytes, DownBytes: u.DownBytes,
				Unsettled: !m.ended.Settled, RelayEnded: m.relayEnded,
			}, nil
		case m.err != nil:
			return runner.Model{}, fmt.Errorf("what the model route was used for is not known: %w", m.err)
		}
		return runner.Model{}, errors.New("the lease of the model route has not ended: it does at its expiry")
	}
}

// modelStatusDocument is what "model status --json" prints.
type modelStatusDocument struct {
	Schema    string           `json:"schema"`
	Control   string           `json:"control"`
	Gateway   string           `json:"gateway"`
	Upstreams []route.Style    `json:"upstreams"`
	Leases    []gateway.Leased `json:"leases"`
}

func (a *app) modelStatusCommand() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "status [NAME_OR_SOCKET]", Short: "List the leases of a model gateway and what they used",
		Long: `List the leases of a model gateway that runs (default the one called "default"),
with what their runs used by its count. A lease is kept for a day after its expiry,
or longer: until another is granted.`,
		Example: "  checkfu model status\n  checkfu model status team --json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return argument.Unexpected("NAME_OR_SOCKET", "at most one", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			named := defaultGateway
			if len(args) == 1 {
				named = args[0]
			}
			o, s, err := a.modelStatus(cmd.Context(), "NAME_OR_SOCKET", named)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(modelStatusDocument{"checkfu.model-status.v1", o.Socket, s.Gateway, s.Upstreams, s.Leases})
			}
			w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "RUN\tLEASE\tLIVE\tEXPIRES\tREQUESTS\tINPUT\tOUTPUT\tESTIMATED")
			for _, l := range s.Leases {
				fmt.Fprintf(w, "%s\t%s\t%v\t%s\t%d\t%d\t%d\t%d\n", argument.Printable(l.RunID), argument.Printable(l.LeaseID), l.Live, l.ExpiresAt,
					l.Used.Requests, l.Used.InputTokens, l.Used.OutputTokens, l.Used.Estimated)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print canonical JSON")
	return cmd
}

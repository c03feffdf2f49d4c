package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/controlplane/gateway"
	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/sandbox"
)

// keeperCommand is the process behind a session. Its inputs come from who starts
// it and from nowhere else, so it has no flag and stands in no help.
func (a *app) keeperCommand() *cobra.Command {
	return &cobra.Command{
		Use: keeper.Argument, Hidden: true, Short: "The process behind a session", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := keeper.Main(cmd.Context(), openKept)
			if keeper.ByHand.Is(err) {
				return argument.Wrong("keeper: %v: see checkfu session --help", err)
			}
			return err
		},
	}
}

// keptOptions are those of a session's provider. Where its packages come from is what
// its starter was told: a file that is gone is an error, and never another registry.
func keptOptions(in keeper.Inputs) (all.Options, error) {
	o := all.Options{Dir: in.Dir, Served: true, Live: in.Live, Cold: in.Cold}
	if in.Registries != "" {
		from, err := all.Registries(in.Registries)
		if err != nil {
			return all.Options{}, fmt.Errorf("its packages come from where %s says: %w", in.Registries, err)
		}
		o.Registries = &from
	}
	if in.Model != "" {
		o.Model = (&modelRoute{operator: gateway.Operator{Socket: in.Model}}).lease
	}
	if in.Provider != all.Memory {
		store, err := openStore(in.Dir, &progress{})
		if err != nil {
			return all.Options{}, err
		}
		o.Images = store
	}
	return o, nil
}

// openKept opens the provider of a session.
func openKept(ctx context.Context, in keeper.Inputs) (*keeper.Opened, error) {
	o, err := keptOptions(in)
	if err != nil {
		return nil, err
	}
	opened, err := all.Open(in.Provider, o)
	if err != nil {
		return nil, err
	}
	if opened.Host != nil {
		// What is missing is named here: a wire would carry no more than its kind.
		if lacks := opened.Host.Lacks(ctx); len(lacks) > 0 {
			err := fmt.Errorf("%s cannot run here: %s: %s; checkfu doctor says what else is missing", in.Provider, lacks[0].What, lacks[0].Remedy)
			return nil, errors.Join(err, opened.Close())
		}
	}
	return &keeper.Opened{Provider: opened.Provider, Close: opened.Close, Tunnel: tunnelOf(opened.Host), ReleaseLive: releaseLiveOf(opened.Host)}, nil
}

// tunnelOf leads to servers in the machines of a host.
func tunnelOf(host all.Host) keeper.TunnelOpener {
	if host == nil {
		return nil
	}
	return func(ctx context.Context, id sandbox.InstanceID, port int) ([3]*os.File, func() error, error) {
		t, err := host.Tunnel(ctx, id, port)
		if err != nil {
			return [3]*os.File{}, nil, err
		}
		return t.Files(), t.Close, nil
	}
}

package all

import (
	"context"
	"os"

	"github.com/checkfu/checkfu/internal/egress/launch"
	"github.com/checkfu/checkfu/internal/provider/native"
)

// RouteError says why a provider gives its machines no model route here.
type RouteError struct {
	Provider string
	Why      string
}

// Error is one line.
func (e *RouteError) Error() string { return e.Provider + " has no model route: " + e.Why }

// routable refuses a model route that no machine would have.
// Errors: *RouteError.
func routable(name string, o Options) error {
	switch {
	case o.Model == nil:
	case name == Memory:
		return &RouteError{name, "its machines are a simulation; use " + Native}
	case !launch.RelayProgram.Built():
		return &RouteError{name, (&launch.MissingError{Program: launch.RelayProgram}).Error()}
	case !landlock():
		return &RouteError{name, "the kernel has no Landlock, in which a relay is confined; use one with it, and name landlock in its parameter lsm="}
	}
	return nil
}

// model is what machines with a model route need, nil where none is wanted.
func model(o Options) *native.Model {
	if o.Model == nil {
		return nil
	}
	m := &native.Model{Lease: o.Model, Start: o.Relay}
	if m.Start == nil {
		m.Start = startRelay
	}
	return m
}

func startRelay(ctx context.Context, config []byte, listener, log *os.File) (native.Attendant, error) {
	p, err := launcher(launch.RelayUID).Relay(ctx, config, listener, log)
	if err != nil {
		return nil, err
	}
	return attendant{p}, nil
}

package server

import (
	"context"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

type processes struct{}

func newProcesses(*Server) *processes                              { return &processes{} }
func (*processes) drain()                                          {}
func (*processes) close()                                          {}
func (*processes) end(...sandbox.InstanceID)                       {}
func (*processes) fence(wire.Lease)                                {}
func (*processes) discard(context.Context, wire.OperationID) error { return nil }

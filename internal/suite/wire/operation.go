package wire

import "github.com/checkfu/checkfu/internal/probe"

func operationProbes() []probe.Probe { return nil }

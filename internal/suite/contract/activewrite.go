package contract

import "github.com/checkfu/checkfu/internal/probe"

func activeWrites() []probe.Probe { return nil }

package contract

import "github.com/checkfu/checkfu/internal/probe"

func snapshots() []probe.Probe { return nil }

package contract

import "github.com/checkfu/checkfu/internal/probe"

func sweeps() []probe.Probe { return nil }

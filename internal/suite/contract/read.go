package contract

import "github.com/checkfu/checkfu/internal/probe"

func reads() []probe.Probe { return nil }

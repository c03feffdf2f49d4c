package contract

import "github.com/checkfu/checkfu/internal/probe"

func writes() []probe.Probe { return nil }

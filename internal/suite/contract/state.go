package contract

import "github.com/checkfu/checkfu/internal/probe"

func states() []probe.Probe { return nil }

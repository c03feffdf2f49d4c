package contract

import "github.com/checkfu/checkfu/internal/probe"

func commands() []probe.Probe { return nil }

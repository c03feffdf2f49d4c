package contract

import "github.com/checkfu/checkfu/internal/probe"

func listings() []probe.Probe { return nil }

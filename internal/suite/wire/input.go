package wire

import "github.com/checkfu/checkfu/internal/probe"

func inputProbes() []probe.Probe { return nil }

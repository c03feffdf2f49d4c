package sandboxtest

// cheats behave for the suite and not for others.
func cheats() []Saboteur { return nil }

// pendingWire wait for the wire.
func pendingWire() []Pending { return nil }

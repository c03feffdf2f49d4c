package sandboxtest

// processFaults are wrong in a live process.
func processFaults() []Saboteur { return nil }

// pendingProcess wait for the wire.
func pendingProcess() []Pending { return nil }

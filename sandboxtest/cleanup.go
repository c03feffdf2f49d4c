package sandboxtest

// cleanupFaults are wrong in teardown and sweeping.
func cleanupFaults() []Saboteur { return nil }

package sandboxtest

// handoffFaults are wrong in the handoff of an allocation.
func handoffFaults() []Saboteur { return nil }

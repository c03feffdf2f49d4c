package sandboxtest

// identityFaults are wrong in one field of an instance.
func identityFaults() []Saboteur { return nil }

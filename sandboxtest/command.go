package sandboxtest

// commandFaults are wrong in one command or its bounds.
func commandFaults() []Saboteur { return nil }

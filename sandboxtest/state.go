package sandboxtest

// stateFaults are wrong in the states of an instance.
func stateFaults() []Saboteur { return nil }

package sandboxtest

// unlisted are those that a check needs and no list had.
func unlisted() []Saboteur { return nil }

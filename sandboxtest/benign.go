package sandboxtest

// benign are odd and right.
func benign() []Saboteur { return nil }

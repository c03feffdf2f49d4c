package sandboxtest

// envelopeFaults are wrong in the envelope.
func envelopeFaults() []Saboteur { return nil }

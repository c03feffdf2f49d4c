package sandboxtest

func deepFileFaults() []Saboteur { return nil }

package sandboxtest

// snapshotFaults are wrong in snapshots, clones and resumption.
func snapshotFaults() []Saboteur { return nil }

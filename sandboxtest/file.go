package sandboxtest

// fileFaults are wrong in reading, writing or listing.
func fileFaults() []Saboteur { return nil }

// pendingFiles wait for a real file system.
func pendingFiles() []Pending { return nil }

package sandboxtest

// activeWriteFaults are wrong in a write to an active mount.
func activeWriteFaults() []Saboteur { return nil }

// pendingActiveWrites wait for a durable journal.
func pendingActiveWrites() []Pending { return nil }

package sandboxtest

// networkFaults are wrong in what the workload may reach.
func networkFaults() []Saboteur { return nil }

// pendingNetwork wait for the egress guard.
func pendingNetwork() []Pending { return nil }

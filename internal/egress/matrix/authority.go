package matrix

// authorityCases are those of who holds what.
func authorityCases() []Case {
	a := []Fact{Authority}
	const relay = "the relay, the plane and the canary are not joined to the matrix yet"
	return []Case{
		{ID: "A01", Title: "a canary in the guard's environment, arguments and memory", Facts: a, todo: relay},
		{ID: "A02", Title: "the guard's descriptors", Facts: a, todo: relay},
		{ID: "A03", Title: "the guard has no way to the plane", Facts: a, todo: relay},
		{ID: "A04", Title: "a host of the plane on the list", Facts: a, todo: relay},
		{ID: "A05", Title: "a listed alias of the plane's address", Facts: []Fact{Authority, Address}, todo: relay},
		{ID: "A06", Title: "the workload calls the relay with its token", Facts: a, todo: relay},
		{ID: "A07", Title: "the relay is asked for something else", Facts: a, todo: relay},
		{ID: "A08", Title: "a token in the head of a request", Facts: a, todo: relay},
		{ID: "A09", Title: "the relay has no way to the internet", Facts: a, todo: relay},
		{ID: "A10", Title: "the relay holds neither the list nor the provider's key", Facts: a, todo: relay},
		{ID: "A11", Title: "the guard is killed, the plane is reached", Facts: []Fact{Authority, Default}, todo: relay},
		{ID: "A12", Title: "the relay is killed, the listed hosts are reached", Facts: []Fact{Authority, Default}, todo: relay},
		{ID: "A13", Title: "another run's token, and a stale lease", Facts: a, todo: relay},
		{ID: "A14", Title: "the guard's configuration is the compiled one", Facts: a, todo: relay},
		{ID: "A15", Title: "the workload's environment names guard and relay only", Facts: a, todo: relay},
		{ID: "A16", Title: "the workload's user cannot look into the guard", Facts: a, todo: relay},
		{ID: "A17", Title: "a canary that is there is found", Facts: a, todo: relay},
	}
}

package sandboxtest

import "slices"

// wireFaults are wrong in how they are spoken to.
func wireFaults() []Saboteur {
	return slices.Concat(wireRequestFaults(), wireBodyFaults(), wireOperationFaults(), wireFenceFaults())
}

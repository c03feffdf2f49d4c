package native

import (
	"context"
	"fmt"
	"strings"
)

// namedRefusals is how many of them an error names.
const namedRefusals = 4

// refused is what the guard of a build refused so far: a registry that is not where
// it was said to be looks, in the words of an installer, like any other failure.
func (b *Builder) refused(ctx context.Context, in *instance) []Refusal {
	if !in.guarded() {
		return nil
	}
	d, _, err := readDecisions(context.WithoutCancel(ctx), in.at, 0)
	if err != nil {
		return nil // what the installer said is said all the same
	}
	return d.Refused
}

// refusedText names the first of them.
func refusedText(all []Refusal) string {
	if len(all) == 0 {
		return ""
	}
	var names []string
	for _, r := range all[:min(len(all), namedRefusals)] {
		names = append(names, fmt.Sprintf("%q (%s)", fmt.Sprintf("%s:%d", r.Host, r.Port), r.Reason))
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return "; the guard of the build refused " + strings.Join(names, ", ")
}

package all

import (
	"context"

	"github.com/checkfu/checkfu/grade"
	"github.com/checkfu/checkfu/sandbox"
)

// Served is p as it may speak over a wire. What p claims as runner_enforced, in
// its envelope and in the evidence of its processes, becomes provider_attested:
// a stranger cannot see that p is compiled into a Runner, and a claim that
// nobody may admit is an overclaim. The controls themselves stay what they are.
// Source: concept "The enforcement statement"; docs/divergences.md, row 15.
func Served(p sandbox.Provider) sandbox.Provider { return served{p} }

type served struct{ sandbox.Provider }

// Capabilities is the envelope, with nothing in it that only a Runner can say.
func (s served) Capabilities(ctx context.Context) (sandbox.Capabilities, error) {
	c, err := s.Provider.Capabilities(ctx)
	return attested(c), err
}

// Optional is the same members; only evidence differs.
func (s served) Optional() sandbox.Optional {
	o := s.Provider.Optional()
	if o.OpenProcess != nil {
		o.OpenProcess = servedProcesses{o.OpenProcess}
	}
	return o
}

type servedProcesses struct{ sandbox.ProcessOpener }

// OpenProcess opens one whose evidence claims what the envelope does.
func (s servedProcesses) OpenProcess(ctx context.Context, id sandbox.InstanceID, processID string, r sandbox.ProcessRequest) (sandbox.Process, error) {
	p, err := s.ProcessOpener.OpenProcess(ctx, id, processID, r)
	if err != nil {
		return nil, err
	}
	return servedProcess{p}, nil
}

type servedProcess struct{ sandbox.Process }

// Evidence is the process's own, capped.
func (s servedProcess) Evidence() sandbox.Evidence {
	e := s.Process.Evidence()
	e.Enforcement = grade.Cap(e.Enforcement, sandbox.ProviderAttested)
	return e
}

func attested(c sandbox.Capabilities) sandbox.Capabilities {
	c.Enforcement = grade.Cap(c.Enforcement, sandbox.ProviderAttested)
	return c
}

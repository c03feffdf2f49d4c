package runner

import (
	"context"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// Egress is what was asked of an allowlist while the command ran, in the words of
// the guard that judged it. A provider that cannot tell leaves it out of the
// Record.
type Egress struct {
	Allowed int64     `json:"allowed"` // requests
	Refused []Refusal `json:"refused"` // the most frequent first
	Others  int64     `json:"others,omitzero"`
	// GuardEnded says that the guard was gone before the command: nothing was
	// reached from then on.
	GuardEnded bool `json:"guard_ended,omitzero"`
}

// Refusal is one destination that was refused for one reason. Host is what was
// asked for where it is no name, and Port 0 where none was understood.
type Refusal struct {
	Host   string `json:"host"`
	Port   int64  `json:"port,omitzero"`
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
}

// egressBound is how long the guard's word is waited for.
const egressBound = 10 * time.Second

// egress asks for the guard's word while its machine is still there. A machine
// with an open network has no guard, but something to be said if it lost its fence.
func (s *session) egress(ctx context.Context) {
	mode := s.record.Profile.NetworkPolicy.Mode
	if s.Egress == nil || mode == sandbox.NetworkNone {
		return
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), egressBound)
	defer cancel()
	said, err := s.Egress(asking, s.id)
	if err != nil {
		s.record.fail(PhaseRelease, s.spec.hide(err))
		return
	}
	if mode != sandbox.NetworkAllowlist {
		return
	}
	for i := range said.Refused { // a workload chose them
		said.Refused[i].Host = text(said.Refused[i].Host)
	}
	s.record.Egress = &said
}

package runner

import (
	"context"
	"time"
)

// Model is what a Run used of a model gateway, by that gateway's count.
type Model struct {
	Requests     int64 `json:"requests"`      // that went to a provider of models
	InputTokens  int64 `json:"input_tokens"`  // all of them, cached ones too
	CachedTokens int64 `json:"cached_tokens"` // those of them that were read from a cache
	OutputTokens int64 `json:"output_tokens"`
	Estimated    int64 `json:"estimated"`  // answers that did not tell their usage to the end
	UpBytes      int64 `json:"up_bytes"`   // of bodies, to the provider of models
	DownBytes    int64 `json:"down_bytes"` // of its answers
	// Unsettled says that a request was still under way at the count.
	Unsettled bool `json:"unsettled,omitzero"`
	// RelayEnded says that the machine's relay was gone before the command: no model
	// was reached from then on.
	RelayEnded bool `json:"relay_ended,omitzero"`
}

// modelBound is how long the gateway's count is waited for.
const modelBound = 20 * time.Second

// model asks for the count, when nothing can use the route any more.
func (s *session) model(ctx context.Context) {
	if s.Model == nil {
		return
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), modelBound)
	defer cancel()
	used, err := s.Model(asking)
	if err != nil {
		s.record.fail(PhaseRelease, s.spec.hide(err))
		return
	}
	s.record.Model = &used
}

package native

import (
	"context"
	"maps"
	"strconv"

	"github.com/checkfu/checkfu/internal/egress/relay"
	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/sandbox"
)

// The model route of a machine: a relay of its own behind a second socket, and a
// loopback port that leads there. It is there in every network mode: "none" has
// this way to the plane and no other.
// Source: concept "Network posture"; design "Egress".
const (
	relaySocket = "relay.sock"
	relayPort   = 3129
)

// Model gives machines a model route.
type Model struct {
	// Start starts their relays, in the host's network.
	Start StartAttendant
	// Lease makes the lease of one instance, before anything of it is made. An
	// error is the provision's.
	Lease func(context.Context, sandbox.ProvisionRequest) (*Lease, error)
}

// Lease is what one instance may use of a model gateway.
type Lease struct {
	Gateway string // where the relay leads, as in relay.Config
	Token   string // of the run, good for this lease alone; it is all that the workload gets
	// End is called when the relay is gone, beside the rest of the removal, which
	// waits for it. It may be called again. It answers nothing: a lease that could
	// not be ended expires by itself.
	End func(context.Context)
	// RelayEnded says, at the End, that the relay was gone before its machine:
	// nothing of a model was reached from then on. The provider sets it.
	RelayEnded bool
}

// takeLease makes the instance's lease, and compiles what its relay is told.
func (in *instance) takeLease(ctx context.Context) error {
	if in.p.opt.Model == nil {
		return nil
	}
	lease, err := in.p.opt.Model.Lease(ctx, in.request)
	if err != nil {
		return err
	}
	port := strconv.Itoa(relayPort)
	in.lease = lease
	in.route, err = relay.Config{
		V: relay.ConfigVersion, Instance: string(in.id), Hosts: []string{"127.0.0.1:" + port, "localhost:" + port},
		Gateway: lease.Gateway, TokenDigest: sandbox.Digest(route.TokenDigest(lease.Token)), ExpiresAt: in.request.ExpiresAt,
	}.Encode()
	return err
}

// judgeRelay notes whether the relay that is about to be dismissed has served until
// now.
func (in *instance) judgeRelay() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.relay == nil {
		return
	}
	select {
	case <-in.relay.Done():
		in.lease.RelayEnded = true
	default:
	}
}

// endLease ends the lease, if there is one.
func (in *instance) endLease(ctx context.Context) {
	if in.lease != nil {
		in.lease.End(ctx)
	}
}

// modelKeys are the variables that SDKs and agents read a base URL or a key from.
// With a model route they are the machine's alone: a caller's own key would be one
// that the workload holds.
var modelKeys = []string{"ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_BASE_URL", "OPENAI_API_KEY"}

// ModelKeys are the variables of the environment that a machine with a model
// route sets itself, and a command of it may not.
func ModelKeys() []string { return append([]string{}, modelKeys...) }

// checkModel refuses an environment that would go around the route.
// Errors: *sandbox.Invalid, without the value.
func (in *instance) checkModel(caller map[string]string) error {
	if in.lease == nil {
		return nil
	}
	for _, key := range modelKeys {
		if _, ok := caller[key]; ok {
			return &sandbox.Invalid{Field: "environment." + key, Expected: "none, for the model route sets it", Got: "one"}
		}
	}
	return nil
}

// addModel tells the machine's programs of the route: of a base URL the relay's
// and no other, of a key the run's token. What the image says of either is gone.
func (in *instance) addModel(env map[string]string) {
	if in.lease == nil {
		return
	}
	for _, key := range modelKeys {
		delete(env, key)
	}
	base := "http://127.0.0.1:" + strconv.Itoa(relayPort)
	maps.Copy(env, map[string]string{
		"ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": in.lease.Token,
		"OPENAI_BASE_URL": base + "/v1", "OPENAI_API_KEY": in.lease.Token,
		// No proxy of the image's stands in between.
		"no_proxy": noProxy, "NO_PROXY": noProxy,
	})
}

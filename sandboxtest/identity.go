package sandboxtest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/grade"
	"github.com/checkfu/checkfu/sandbox"
)

// lie is one wrong field of an instance. tell returns false where it would not
// be wrong.
type lie struct {
	id, fault, check string
	tell             func(i *sandbox.Instance) bool
}

// lies are told at provision, at activation and at resume alike.
// Source: contract "Identity is cross-checked, not trusted".
var lies = []lie{
	{"I1", "another provider", "provider", func(i *sandbox.Instance) bool { i.Provider += "-eu"; return true }},
	{"I2", "another placement", "placement", func(i *sandbox.Instance) bool {
		other := sandbox.PlacementHosted
		if i.Placement == other {
			other = sandbox.PlacementLocal
		}
		i.Placement = other
		return true
	}},
	{"I3", "the other state", "state", func(i *sandbox.Instance) bool {
		other := sandbox.StateProvisioning
		if i.State == other {
			other = sandbox.StateActive
		}
		i.State = other
		return true
	}},
	{"I4", "another workspace_id", "workspace_id", func(i *sandbox.Instance) bool { i.WorkspaceID += "0"; return true }},
	{"I5", "another session_id", "session_id", func(i *sandbox.Instance) bool { i.SessionID += "0"; return true }},
	{"I6", "another run_id", "run_id", func(i *sandbox.Instance) bool { i.RunID += "0"; return true }},
	{"I7", "another attempt_id", "attempt_id", func(i *sandbox.Instance) bool { i.AttemptID += "0"; return true }},
	{"I8", "another lease_id", "lease_id", func(i *sandbox.Instance) bool { i.LeaseID += "0"; return true }},
	{"I9", "lease_epoch counted up", "lease_epoch", func(i *sandbox.Instance) bool { i.LeaseEpoch++; return true }},
	{"I10", "one leaf of the target", "target", func(i *sandbox.Instance) bool { i.Target.MaterializationRevision += "+1"; return true }},
	{"I11", "one nested leaf of the profile", "profile", func(i *sandbox.Instance) bool { i.Profile.ResourceLimits.MaxDurationSeconds++; return true }},
	{"I12", "another platform", "platform", func(i *sandbox.Instance) bool {
		i.Platform.Architecture = map[string]string{"amd64": "arm64", "arm64": "amd64"}[i.Platform.Architecture]
		return true
	}},
	{"I13", "root_image as a tag", "root_image", func(i *sandbox.Instance) bool {
		i.RootImage, _, _ = strings.Cut(i.RootImage, "@")
		i.RootImage += ":latest"
		return true
	}},
	{"I15", "output_path with a slash at its end", "output_path", func(i *sandbox.Instance) bool { i.OutputPath += "/"; return true }},
	{"I16", "expires_at at the same instant in other bytes", "expires_at", func(i *sandbox.Instance) bool {
		i.ExpiresAt = sandbox.Timestamp(strings.TrimSuffix(string(i.ExpiresAt), "Z") + "+00:00")
		return true
	}},
	{"I17", "another profile_digest", "materialization.profile_digest", func(i *sandbox.Instance) bool {
		i.Materialization.ProfileDigest = "sha256:" + sandbox.Digest(strings.Repeat("17", 32))
		return true
	}},
	{"I18", "image_reference as a tag", "materialization.image_reference", func(i *sandbox.Instance) bool {
		i.Materialization.ImageReference, _, _ = strings.Cut(i.Materialization.ImageReference, "@")
		i.Materialization.ImageReference += ":latest"
		return true
	}},
	{"I19", "image_digest of the image store", "materialization.image_digest", func(i *sandbox.Instance) bool {
		i.Materialization.ImageDigest = "sha256:" + sandbox.Digest(strings.Repeat("19", 32))
		return true
	}},
	{"I20", "another provider_revision", "materialization.provider_revision", func(i *sandbox.Instance) bool { i.Materialization.ProviderRevision += "+1"; return true }},
	{"I21", "another materialization_revision", "materialization.materialization_revision", func(i *sandbox.Instance) bool {
		i.Materialization.MaterializationRevision += "+1"
		return true
	}},
	{"I22", "expires_at replaced by the platform's deadline", "expires_at", func(i *sandbox.Instance) bool {
		at, err := i.ExpiresAt.Time()
		i.ExpiresAt = sandbox.At(at.Add(time.Hour))
		return err == nil
	}},
}

// liesInFull show only where there is something to sort, to cut or to fill in:
// in the full requests of the contract suite.
var liesInFull = []lie{
	{"I14", "mounts sorted", "mounts", func(i *sandbox.Instance) bool {
		sorted := slices.SortedFunc(slices.Values(i.Mounts), func(a, b sandbox.Mount) int { return cmp.Compare(a.MountPath, b.MountPath) })
		changed := !slices.Equal(sorted, i.Mounts)
		i.Mounts = sorted
		return changed
	}},
	{"I23", "the last mount left out", "mounts", func(i *sandbox.Instance) bool {
		n := len(i.Mounts)
		i.Mounts = i.Mounts[:max(0, n-1)]
		return n > 0
	}},
	{"I24", "lease_epoch as it was first", "lease_epoch", func(i *sandbox.Instance) bool {
		later := i.LeaseEpoch > 1
		i.LeaseEpoch = min(i.LeaseEpoch, 1)
		return later
	}},
	{"I25", "expires_at cut to seconds", "expires_at", func(i *sandbox.Instance) bool {
		at, err := i.ExpiresAt.Time()
		cut := sandbox.At(at.Truncate(time.Second))
		changed := err == nil && cut != i.ExpiresAt
		i.ExpiresAt = cut
		return changed
	}},
	{"I26", "destinations sorted", "profile", func(i *sandbox.Instance) bool {
		had := i.Profile.NetworkPolicy.Destinations
		if len(had) < 2 {
			return false
		}
		sorted := slices.SortedFunc(slices.Values(had), func(a, b sandbox.Destination) int { return cmp.Compare(a.Host, b.Host) })
		i.Profile.NetworkPolicy.Destinations = sorted
		return !slices.Equal(sorted, had)
	}},
	{"I27", "a default filled in", "profile", func(i *sandbox.Instance) bool {
		policy := &i.Profile.NetworkPolicy
		required, ok := grade.Required(*policy)
		if !ok || policy.RequiredEgressCertification != "" {
			return false
		}
		policy.RequiredEgressCertification = required
		return true
	}},
}

// identityFaults are each lie at each of the three members that return an
// instance, and what is wrong with instance_id, the one field that is the
// provider's own.
func identityFaults() []Saboteur {
	all := append(told(lies, report.Nine), told(liesInFull, report.Contract)...)
	rename := func(name func(id sandbox.InstanceID) sandbox.InstanceID) func(sandbox.Provider, *Env) sandbox.Provider {
		return lyingAtActivate(func(i *sandbox.Instance) bool { i.InstanceID = name(i.InstanceID); return true })
	}
	return append(all,
		Saboteur{ID: "I28", Fault: "an instance has another id once it is active", Kills: "identity.activate/instance_id", Suite: report.Contract,
			Wrap: rename(func(id sandbox.InstanceID) sandbox.InstanceID { return id + "-active" })},
		Saboteur{ID: "I29", Fault: "a malformed instance_id", Kills: "identity.activate/form", Suite: report.Contract,
			Wrap: rename(func(id sandbox.InstanceID) sandbox.InstanceID { return id + "\n" })},
		Saboteur{ID: "I30", Fault: "two instances of one lease share an id", Kills: "identity.provision/instance_id", Suite: report.Contract, Wrap: sharingIDs},
		Saboteur{ID: "I31", Fault: "takes the first epoch of a lease only", Kills: "identity.request-in-full/provision", Wrap: firstEpochOnly},
		Saboteur{ID: "I32", Fault: "resumes under the first epoch of a lease only", Kills: "identity.resume-in-full/resume", Wrap: resumingFirstEpochOnly},
	)
}

// told makes three saboteurs of each lie.
func told(lies []lie, suite report.Suite) []Saboteur {
	var all []Saboteur
	for _, l := range lies {
		for _, at := range []struct {
			letter, row, member string
			wrap                func(tell func(*sandbox.Instance) bool) func(sandbox.Provider, *Env) sandbox.Provider
		}{
			{"p", "identity.provision", "provision", lyingAtProvision},
			{"a", "identity.activate", "activate", lyingAtActivate},
			{"r", "identity.resume", "resume", lyingAtResume},
		} {
			all = append(all, Saboteur{
				ID: l.id + at.letter, Fault: at.member + " returns " + l.fault, Kills: at.row + "/" + l.check,
				Suite: suite, Wrap: at.wrap(l.tell),
			})
		}
	}
	return all
}

type instanceHandoff = sandbox.Handoff[sandbox.Instance]

// telling tells a lie about what came back.
func telling(env *Env, tell func(*sandbox.Instance) bool, h instanceHandoff, err error) (instanceHandoff, error) {
	if err == nil {
		h.Value.Mounts = slices.Clone(h.Value.Mounts)
		if tell(&h.Value) {
			env.Fire()
		}
	}
	return h, err
}

func lyingAtProvision(tell func(*sandbox.Instance) bool) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		return Override{Provider: p, ProvisionFunc: func(ctx context.Context, q sandbox.ProvisionRequest) (instanceHandoff, error) {
			h, err := p.Provision(ctx, q)
			return telling(env, tell, h, err)
		}}
	}
}

func lyingAtActivate(tell func(*sandbox.Instance) bool) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		return Override{Provider: p, ActivateFunc: func(ctx context.Context, id sandbox.InstanceID) (instanceHandoff, error) {
			h, err := p.Activate(ctx, id)
			return telling(env, tell, h, err)
		}}
	}
}

func lyingAtResume(tell func(*sandbox.Instance) bool) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		return Override{Provider: p, ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (instanceHandoff, error) {
			h, err := p.Resume(ctx, q)
			return telling(env, tell, h, err)
		}}
	}
}

// sharingIDs calls the second instance of a lease by the name of the first. It
// still knows what it has made.
func sharingIDs(p sandbox.Provider, env *Env) sandbox.Provider {
	var mu sync.Mutex
	first := map[string]sandbox.InstanceID{}
	others := map[sandbox.InstanceID][]sandbox.InstanceID{}
	return Override{
		Provider: p,
		ProvisionFunc: func(ctx context.Context, q sandbox.ProvisionRequest) (instanceHandoff, error) {
			h, err := p.Provision(ctx, q)
			if err != nil {
				return h, err
			}
			mu.Lock()
			defer mu.Unlock()
			name, again := first[q.LeaseID]
			if !again {
				first[q.LeaseID] = h.Value.InstanceID
				return h, nil
			}
			env.Fire()
			others[name] = append(others[name], h.Value.InstanceID)
			h.Value.InstanceID = name
			return h, nil
		},
		DestroyFunc: func(ctx context.Context, id sandbox.InstanceID) error {
			mu.Lock()
			also := others[id]
			mu.Unlock()
			for _, other := range also {
				if err := p.Destroy(ctx, other); err != nil {
					return err
				}
			}
			return p.Destroy(ctx, id)
		},
	}
}

func firstEpochOnly(p sandbox.Provider, env *Env) sandbox.Provider {
	return Override{Provider: p, ProvisionFunc: func(ctx context.Context, q sandbox.ProvisionRequest) (instanceHandoff, error) {
		if q.LeaseEpoch > 1 {
			env.Fire()
			return instanceHandoff{}, sandbox.Conflict(sandbox.OpProvision, "lease_epoch 1", "another")
		}
		return p.Provision(ctx, q)
	}}
}

func resumingFirstEpochOnly(p sandbox.Provider, env *Env) sandbox.Provider {
	return Override{Provider: p, ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (instanceHandoff, error) {
		if q.Request.LeaseEpoch > 1 {
			env.Fire()
			return instanceHandoff{}, sandbox.Conflict(sandbox.OpResume, "lease_epoch 1", "another")
		}
		return p.Resume(ctx, q)
	}}
}

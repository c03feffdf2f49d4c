package sandboxtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/checkfu/checkfu/sandbox"
)

// answerKey is who read the suite and wrote down what it wants to hear: every
// identity, every state, every deadline, every refusal, and a word for every
// command that can be foreseen. There is no machine behind it.
type answerKey struct {
	echo
	files     map[sandbox.InstanceID]map[string][]byte
	snapshots map[sandbox.SnapshotID]sandbox.Snapshot
}

func newAnswerKey(p sandbox.Provider, env *Env) sandbox.Provider {
	return &answerKey{echo: newEcho(p, env), files: map[sandbox.InstanceID]map[string][]byte{}, snapshots: map[sandbox.SnapshotID]sandbox.Snapshot{}}
}

// known answers for what is not there, or in another state.
func (a *answerKey) known(op sandbox.Operation, id sandbox.InstanceID, states ...sandbox.State) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, ok := a.instances[id]
	switch {
	case !ok:
		return sandbox.NoInstance(op, id)
	case !slices.Contains(states, i.state):
		return sandbox.Conflict(op, string(states[0]), string(i.state))
	}
	return nil
}

func (a *answerKey) WriteFile(_ context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
	if err := a.known(sandbox.OpWriteFile, id, sandbox.StateProvisioning, sandbox.StateActive); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.instances[id].state == sandbox.StateActive && !sandbox.Within(w.Path, sandbox.OutputPath) {
		return sandbox.Conflict(sandbox.OpWriteFile, string(sandbox.StateProvisioning), string(sandbox.StateActive))
	}
	if a.files[id] == nil {
		a.files[id] = map[string][]byte{}
	}
	a.files[id][w.Path] = slices.Clone(w.Content)
	return nil
}

func (a *answerKey) Activate(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
	if err := a.known(sandbox.OpActivate, id, sandbox.StateProvisioning); err != nil {
		return sandbox.Handoff[sandbox.Instance]{}, err
	}
	return a.echo.Activate(ctx, id)
}

func (a *answerKey) ReadFile(_ context.Context, id sandbox.InstanceID, q sandbox.FileRead) ([]byte, error) {
	if err := a.known(sandbox.OpReadFile, id, sandbox.StateActive); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if content, ok := a.files[id][q.Path]; ok {
		return slices.Clone(content), nil
	}
	return nil, sandbox.FailedAt(sandbox.OpReadFile, q.Path, sandbox.ReasonNotFound, nil)
}

// Execute knows cat, echo, sha256sum and exit by their looks, that whatever
// tests for a file wants none, and that nothing may be reached or changed.
func (a *answerKey) Execute(_ context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
	if err := a.known(sandbox.OpExecute, id, sandbox.StateActive); err != nil {
		return sandbox.Settlement{}, err
	}
	a.fire()
	now := sandbox.At(a.now())
	s := sandbox.Settlement{Exit: sandbox.Exited(0), StartedAt: now, FinishedAt: now}
	a.mu.Lock()
	defer a.mu.Unlock()
	files := a.files[id]
	if files == nil {
		files = map[string][]byte{}
		a.files[id] = files
	}
	script := ""
	if len(c.Arguments) > 0 {
		script = c.Arguments[len(c.Arguments)-1]
	}
	for part := range strings.SplitSeq(script, "&&") {
		words := strings.Fields(part)
		if len(words) < 2 {
			continue
		}
		path := words[len(words)-1]
		switch {
		case words[0] == "cat":
			s.Stdout = append(s.Stdout, files[path]...)
		case words[0] == "sha256sum":
			sum := sha256.Sum256(files[path])
			s.Stdout = append(s.Stdout, hex.EncodeToString(sum[:])+"  "+path+"\n"...)
		case words[0] == "echo" && len(words) == 4 && words[2] == ">":
			if _, staged := files[path]; staged && !sandbox.Within(path, sandbox.OutputPath) {
				s.Exit = sandbox.Exited(1)
			} else {
				files[path] = []byte(words[1] + "\n")
			}
		case words[0] == "echo":
			s.Stdout = append(s.Stdout, strings.Join(words[1:], " ")+"\n"...)
		case words[0] == "exit":
			code, _ := strconv.ParseInt(words[1], 10, 64)
			s.Exit = sandbox.Exited(code & 0xff)
		default: // a test, a connection, a removal
			s.Exit = sandbox.Exited(1)
		}
	}
	if limit := c.OutputLimitBytes; int64(len(s.Stdout)) > limit {
		return sandbox.Settlement{}, sandbox.OverLimit(sandbox.StreamStdout, limit)
	}
	return s, nil
}

func (a *answerKey) Snapshot(ctx context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	if err := a.known(sandbox.OpSnapshot, id, sandbox.StateActive); err != nil {
		return sandbox.Handoff[sandbox.Snapshot]{}, err
	}
	a.mu.Lock()
	zdr := a.instances[id].request.Profile.RetentionMode == sandbox.RetentionEphemeralZDR
	a.mu.Unlock()
	if zdr {
		return sandbox.Handoff[sandbox.Snapshot]{}, sandbox.Forbidden(sandbox.OpSnapshot, id)
	}
	h, err := a.echo.Snapshot(ctx, id, q)
	a.keep(h.Value)
	return h, err
}

func (a *answerKey) keep(s sandbox.Snapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.snapshots[s.SnapshotID] = s
}

func (a *answerKey) CloneSnapshot(ctx context.Context, q sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	h, err := a.echo.CloneSnapshot(ctx, q)
	a.keep(h.Value)
	return h, err
}

func (a *answerKey) Release(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
	if err := a.known(sandbox.OpRelease, id, sandbox.StateActive); err != nil {
		return sandbox.Handoff[sandbox.Released]{}, err
	}
	h, err := a.echo.Release(ctx, id, q)
	if h.Value.Snapshot != nil {
		a.keep(*h.Value.Snapshot)
	}
	return h, err
}

// Resume gives an instance that has what its source had.
func (a *answerKey) Resume(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
	a.mu.Lock()
	_, ok := a.snapshots[q.Snapshot.SnapshotID]
	files := a.files[q.Snapshot.SourceInstanceID]
	a.mu.Unlock()
	if !ok {
		return sandbox.Handoff[sandbox.Instance]{}, sandbox.NoSnapshot(sandbox.OpResume, q.Snapshot.SnapshotID)
	}
	h, err := a.echo.Resume(ctx, q)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.files[h.Value.InstanceID] = files
	return h, err
}

func (a *answerKey) DestroySnapshot(_ context.Context, id sandbox.SnapshotID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.snapshots, id)
	return nil
}

// Cleanup sweeps by the book.
func (a *answerKey) Cleanup(_ context.Context, q sandbox.CleanupRequest) (sandbox.Swept, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	swept := sandbox.Swept{InstanceIDs: []sandbox.InstanceID{}, SnapshotIDs: []sandbox.SnapshotID{}}
	for id, i := range a.instances {
		if !q.Now.Before(i.request.ExpiresAt) {
			delete(a.instances, id)
			swept.InstanceIDs = append(swept.InstanceIDs, id)
		}
	}
	for id, s := range a.snapshots {
		if !q.Now.Before(s.ExpiresAt) || s.CreatedAt.Before(q.OrphanedBefore) && !slices.Contains(q.PinnedSnapshots, id) {
			delete(a.snapshots, id)
			swept.SnapshotIDs = append(swept.SnapshotIDs, id)
		}
	}
	slices.Sort(swept.InstanceIDs)
	slices.Sort(swept.SnapshotIDs)
	return swept, nil
}

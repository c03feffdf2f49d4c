package examples

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/scaffold"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// durable is a provider that keeps snapshots, and an envelope for requests.
type durable struct {
	*program
	envelope sandbox.Capabilities
}

// skeletons are the languages of which every provider that keeps snapshots is held
// to the same.
var skeletons = map[string]func(t *testing.T, tier string) string{"python": pythonSkeleton, "typescript": typescriptSkeleton}

// ofEach runs a test with a provider of each. Where a wrapper is given it starts the
// provider.
func ofEach(t *testing.T, wrapper string, test func(t *testing.T, d *durable)) {
	t.Parallel()
	for name, skeleton := range skeletons {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, spawnDurable(t, skeleton(t, scaffold.Durable), wrapper))
		})
	}
}

// spawnDurable starts one.
func spawnDurable(t *testing.T, path, wrapper string) *durable {
	t.Helper()
	if wrapper != "" {
		script := filepath.Join(filepath.Dir(path), "wrapper")
		if err := os.WriteFile(script, []byte("#!/bin/sh\nset -e\n"+strings.ReplaceAll(wrapper, "PROVIDER", "'"+path+"'")), 0o700); err != nil {
			t.Fatal(err)
		}
		path = script
	}
	p := spawn(t, path)
	p.durable = true
	envelope, err := p.Capabilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &durable{p, envelope}
}

// machine makes an active instance that can be kept, under a lease.
func (d *durable) machine(t *testing.T, lease string) (sandbox.InstanceID, sandbox.ProvisionRequest) {
	t.Helper()
	q := request(d.envelope, sandbox.RetentionDurable, lease)
	q.Profile.ResourceLimits = d.envelope.MaximumResources
	h, err := d.Provision(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Activate(t.Context(), h.Value.InstanceID); err != nil {
		t.Fatal(err)
	}
	return h.Value.InstanceID, q
}

// sh runs a script in an instance, which has to succeed.
func (d *durable) sh(t *testing.T, id sandbox.InstanceID, script string) string {
	t.Helper()
	s, err := d.Execute(t.Context(), id, sandbox.Command{
		Executable: "/bin/sh", Arguments: []string{"-ec", script}, WorkingDirectory: sandbox.OutputPath, Environment: map[string]string{},
		TimeoutSeconds: 120, OutputLimitBytes: 1 << 20,
	})
	if err != nil || s.Exit.ExitCode == nil || *s.Exit.ExitCode != 0 {
		t.Fatalf("%s: %v, %+v\n%s", script, err, s.Exit, s.Stderr)
	}
	return string(s.Stdout)
}

// resume makes an instance of a snapshot, under a lease of its own.
func (d *durable) resume(t *testing.T, q sandbox.ProvisionRequest, s sandbox.Snapshot) (sandbox.InstanceID, error) {
	q.LeaseID, q.SessionID = strings.TrimPrefix(string(wire.NewOperationID()), "op_"), s.SessionID
	h, err := d.Resume(t.Context(), sandbox.ResumeRequest{Request: q, Snapshot: s})
	return h.Value.InstanceID, err
}

// files are those of the provider's snapshots.
func (d *durable) files(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(d.state, "snapshots"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// last is how long the newest of the files is by now.
func (d *durable) last(t *testing.T) int64 {
	t.Helper()
	newest := time.Time{}
	size := int64(0)
	for _, name := range d.files(t) {
		info, err := os.Stat(filepath.Join(d.state, "snapshots", name))
		if err == nil && info.ModTime().After(newest) {
			newest, size = info.ModTime(), info.Size()
		}
	}
	return size
}

// sweep takes every snapshot that there is, and says which.
func (d *durable) sweep(t *testing.T) []string {
	t.Helper()
	later := sandbox.At(time.Now().Add(12 * time.Hour))
	swept, err := d.Cleanup(t.Context(), sandbox.CleanupRequest{Now: later, OrphanedBefore: later})
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(swept.SnapshotIDs))
	for i, id := range swept.SnapshotIDs {
		names[i] = string(id)
	}
	return names
}

// delivery is one request by hand, which can be delivered again.
type delivery struct {
	endpoint  wire.Endpoint
	operation wire.OperationID
	lease     string
	epoch     int
	body      any
}

// deliver returns what was answered, or why nothing was.
func (d *durable) deliver(ctx context.Context, r delivery) (status int, body []byte, err error) {
	data, err := json.Marshal(r.body)
	if err != nil {
		return 0, nil, err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://provider/v1/"+string(r.endpoint), bytes.NewReader(data))
	if err != nil {
		return 0, nil, err
	}
	q.Header.Set("Authorization", "Bearer "+token)
	q.Header.Set(wire.HeaderWire, wire.Revision)
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set(wire.HeaderLeaseID, r.lease)
	q.Header.Set(wire.HeaderLeaseEpoch, strconv.Itoa(cmp.Or(r.epoch, 1)))
	if r.operation != "" {
		q.Header.Set(wire.HeaderOperationID, string(r.operation))
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.socket())
	}}
	a, err := transport.RoundTrip(q)
	if err != nil {
		return 0, nil, err
	}
	defer a.Body.Close()
	body, err = io.ReadAll(a.Body)
	return a.StatusCode, body, err
}

// answers delivers, and wants one status, and a word in the body.
func (d *durable) answers(t *testing.T, r delivery, status int, word string) []byte {
	t.Helper()
	got, body, err := d.deliver(t.Context(), r)
	if err != nil || got != status || !strings.Contains(string(body), word) {
		t.Errorf("%s: %d %s, %v; want %d with %q", r.endpoint, got, body, err, status, word)
	}
	return body
}

// capture is the delivery of a snapshot.
func capture(id sandbox.InstanceID, lease string) delivery {
	return delivery{endpoint: wire.Snapshot, operation: wire.NewOperationID(), lease: lease,
		body: wire.SnapshotRequest{InstanceID: id, ExpiresAt: sandbox.At(time.Now().Add(time.Hour))}}
}

// undo is the delivery of the rollback of another.
func (r delivery) undo() delivery {
	return delivery{endpoint: wire.RollbackOperation, lease: r.lease, body: wire.RollbackRequest{OperationID: r.operation, Member: r.endpoint}}
}

func handed(t *testing.T, body []byte) sandbox.Snapshot {
	t.Helper()
	var h struct{ Value sandbox.Snapshot }
	if err := json.Unmarshal(body, &h); err != nil || h.Value.SnapshotID == "" {
		t.Fatalf("%s: %v", body, err)
	}
	return h.Value
}

package sandboxruntime

import (
	"context"
	"errors"
	"strconv"

	"github.com/checkfu/checkfu/sandbox"
)

// ReadFiles reads a batch of files of an active instance and answers every
// member in order: its content, or why it was refused.
//
// Roots are separate trust domains, so the batch goes to the provider as one
// call for each root, with exactly the sum of that group's own bounds as its
// budget. Where the provider has no native batch, the members are read one by
// one with the same results.
//
// Bounds: 1 to 1,024 files and 128 MiB over all members; a larger batch is
// refused and never split, because each part would be a batch of its own to
// the budget.
// Errors: as ReadFile, but outside_root, not_found, not_regular and too_large
// are answers of the member and not errors; ProtocolInvalid fails the whole
// batch for a result that is out of order, short, or over a budget.
// Source: contract "The operations", row readFiles; "Paths, mounts, and what
// the Runner admits first", last paragraph.
func (r *Runtime) ReadFiles(ctx context.Context, id sandbox.InstanceID, members []sandbox.FileMember) ([]sandbox.FileResult, error) {
	const op = sandbox.OpReadFiles
	if err := checkBatch(members); err != nil {
		return nil, refused(op, err)
	}
	i, err := r.enter(op, id, active)
	if err != nil {
		return nil, err
	}
	defer i.leave() // each call below counts as a use of its own
	results := make([]sandbox.FileResult, len(members))
	for _, g := range i.group(members) {
		if g.root == "" {
			for _, n := range g.members {
				results[n] = sandbox.FileResult{Refused: sandbox.RefusedOutsideRoot}
			}
			continue
		}
		read := r.readGroup
		if r.optional.ReadFiles == nil {
			read = r.readSequentially
		}
		q := g.request(members)
		answers, err := read(ctx, i, q)
		if err != nil {
			return nil, err
		}
		for n, answer := range answers {
			results[g.members[n]] = answer
		}
	}
	return results, nil
}

func checkBatch(members []sandbox.FileMember) error {
	if len(members) == 0 || len(members) > sandbox.MaxReadFiles {
		return &sandbox.Invalid{Field: "files", Expected: "1 to " + strconv.Itoa(sandbox.MaxReadFiles), Got: strconv.Itoa(len(members))}
	}
	var sum int64
	for n, m := range members {
		if err := sandbox.CheckPath("files["+strconv.Itoa(n)+"].path", m.Path); err != nil {
			return err
		}
		if m.MaximumBytes < 0 || m.MaximumBytes > sandbox.MaxFileBytes {
			return &sandbox.Invalid{Field: "files[" + strconv.Itoa(n) + "].maximum_bytes",
				Expected: "0 to " + strconv.Itoa(sandbox.MaxFileBytes), Got: strconv.FormatInt(m.MaximumBytes, 10)}
		}
		sum += m.MaximumBytes // at most 1,024 × 16 MiB
	}
	if sum > sandbox.MaxReadFilesBytes {
		return &sandbox.Invalid{Field: "aggregate_maximum_bytes", Expected: "at most " + strconv.Itoa(sandbox.MaxReadFilesBytes), Got: strconv.FormatInt(sum, 10)}
	}
	return nil
}

// group is the members of one batch that have one root, by their index. The
// group without root holds those that lie outside all of them.
type group struct {
	root    string
	members []int
}

func (i *instance) group(members []sandbox.FileMember) []group {
	var groups []group
	at := map[string]int{}
	for n, m := range members {
		root := i.rootOf(m.Path)
		if root == m.Path {
			root = "" // the root itself is no file below it
		}
		g, ok := at[root]
		if !ok {
			g = len(groups)
			at[root] = g
			groups = append(groups, group{root: root})
		}
		groups[g].members = append(groups[g].members, n)
	}
	return groups
}

func (g group) request(members []sandbox.FileMember) sandbox.FilesRead {
	q := sandbox.FilesRead{AllowedRoot: g.root, Files: make([]sandbox.FileMember, len(g.members))}
	for n, m := range g.members {
		q.Files[n] = members[m]
		q.AggregateMaximumBytes += members[m].MaximumBytes
	}
	return q
}

// readGroup is one native batch call.
func (r *Runtime) readGroup(ctx context.Context, i *instance, q sandbox.FilesRead) ([]sandbox.FileResult, error) {
	const op = sandbox.OpReadFiles
	files := append([]sandbox.FileMember(nil), q.Files...) // out of the provider's reach
	i.reenter()
	answers, err := use(ctx, r, i, call[[]sandbox.FileResult]{op: op, run: func(ctx context.Context) ([]sandbox.FileResult, error) {
		return r.optional.ReadFiles.ReadFiles(ctx, i.id, q)
	}})
	if err != nil {
		return nil, err
	}
	if len(answers) != len(files) {
		return nil, protocolInvalid(op, "files", strconv.Itoa(len(files))+" results", strconv.Itoa(len(answers)))
	}
	// Each within its own bound is all within their sum.
	for n, answer := range answers {
		if err := answer.Validate(files[n]); err != nil {
			inv, _ := errors.AsType[*sandbox.Invalid](err)
			return nil, protocolInvalid(op, "files["+strconv.Itoa(n)+"]."+inv.Field, inv.Expected, inv.Got)
		}
	}
	return answers, nil
}

// readSequentially answers a group by one ReadFile for each member.
// Source: contract "Optional capabilities: absent versus wrong", row readFiles.
func (r *Runtime) readSequentially(ctx context.Context, i *instance, q sandbox.FilesRead) ([]sandbox.FileResult, error) {
	answers := make([]sandbox.FileResult, len(q.Files))
	for n, m := range q.Files {
		content, err := r.ReadFile(ctx, i.id, m.Path, m.MaximumBytes)
		answers[n].Content = content
		if err != nil {
			reason, ok := refusal(err)
			if !ok {
				return nil, err
			}
			answers[n] = sandbox.FileResult{Refused: reason}
		}
	}
	return answers, nil
}

// refusal is what a failed ReadFile means as an answer in a batch.
func refusal(err error) (sandbox.Refusal, bool) {
	e, ok := err.(*sandbox.Error)
	if !ok {
		return "", false
	}
	if e.Kind == sandbox.FileTooLarge {
		return sandbox.RefusedTooLarge, true
	}
	reason := sandbox.Refusal(e.Reason)
	return reason, e.Kind == sandbox.OperationFailed && reason.Valid()
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/egress/policy"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/internal/provider/native/recipe"
	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/sandbox"
)

// packagesHelp is what a person must know before they ask for one.
const packagesHelp = `With --package the machine runs on an image that has these packages too. It is
built once, in a sandbox of its own that reaches the registries alone, and kept
(see checkfu image ls); the machine reaches no more than without.`

// registries reads the operator's settings where a file of them was named. at is that
// file wherever it is named from, "" for none.
func registries(path string) (at string, _ *recipe.Registries, _ error) {
	if path == "" {
		return "", nil, nil
	}
	at, err := filepath.Abs(path)
	if err != nil {
		return "", nil, err
	}
	r, err := all.Registries(at)
	if err == nil {
		return at, &r, nil
	}
	_, schema := errors.AsType[*canonical.Error](err)
	_, value := errors.AsType[*sandbox.Invalid](err)
	if _, file := errors.AsType[*os.PathError](err); schema || value || file {
		return "", nil, argument.Wrong("--registries: %v", err)
	}
	return "", nil, err
}

// materialize has the image of a machine with packages made, if there is none yet,
// where a person sees it; provisioning then finds it there.
func (a *app) materialize(ctx context.Context, o *all.Opened, base string, packages []sandbox.Package) error {
	if len(packages) == 0 {
		return nil
	}
	if err := o.Packages(ctx); err != nil {
		return argument.Wrong("--package: %v", err)
	}
	_, err := o.Builder.Materialize(ctx, sandbox.Profile{BaseImage: base, Packages: packages}, sandbox.Platform{OS: "linux", Architecture: runtime.GOARCH})
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if bad, ok := errors.AsType[*sandbox.Invalid](err); ok {
		return argument.Wrong("--package: %v; say where packages come from in %s of the state directory, or by --registries FILE (docs/packages.md)", bad, all.RegistriesFile)
	}
	if e, ok := errors.AsType[*native.BuildError](err); ok {
		return explainBuild(e)
	}
	return err
}

// install is materialize for a Run, whose interruptions come by stop: one ends the
// build, of which nothing is left.
func (a *app) install(ctx context.Context, o *all.Opened, spec runner.Spec, stop <-chan sandbox.ControlSignal) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case sig := <-stop:
			cancel(fmt.Errorf("interrupted by %s; nothing is left of the installation", sig))
		case <-done:
		}
	}()
	return a.materialize(ctx, o, spec.Image, spec.Packages)
}

// packagesNote is what doctor says of packages.
func packagesNote(err error) string {
	if err != nil {
		return "--package cannot be had here: " + argument.OneLine(err.Error())
	}
	var names []string
	for _, m := range recipe.Managers() {
		names = append(names, string(m))
	}
	return "--package installs packages of " + strings.Join(names, ", ")
}

// explainBuild says what to do about a package that could not be installed.
func explainBuild(e *native.BuildError) error {
	for _, r := range e.Refused {
		switch policy.Reason(r.Reason) {
		case policy.ReasonAnswerNotPublic, policy.ReasonAnswerNotPinned:
			return &hinted{e, "pin the addresses of " + r.Host + " in " + all.RegistriesFile + " of the state directory, or in the file of --registries"}
		case policy.ReasonNotAllowlisted, policy.ReasonPortNotAllowlisted:
			return &hinted{e, "name that host for its manager in " + all.RegistriesFile + " of the state directory, or in the file of --registries, if its packages are trusted"}
		}
	}
	if strings.Contains(e.Reason, "the image has no") {
		return e
	}
	return &hinted{e, "check the name and the version"}
}

// hinted is an error with what to do about it.
type hinted struct {
	err  error
	hint string
}

// Error is one line.
func (h *hinted) Error() string { return h.err.Error() + "; " + h.hint }

// Unwrap returns the error.
func (h *hinted) Unwrap() error { return h.err }

// building shows a step of a build, with what it said last.
func (p *progress) building(step native.BuildProgress) {
	if p.to == nil {
		return
	}
	const most = 60 // of what a narrow terminal has
	what := step.Phase + " " + strings.Join(step.Packages, " ")
	if len(what) > most {
		what = what[:most] + "…"
	}
	if step.Line != "" {
		line := step.Line
		if r := []rune(line); len(r) > most {
			line = string(r[:most]) + "…"
		}
		what += ": " + line
	}
	p.show(what, 0, 0, false)
}

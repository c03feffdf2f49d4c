package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/internal/provider/native/recipe"
	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// runFlags are the flags of "checkfu run" as they were typed. Every number is
// text: the flag library would take more forms than we do, and its errors
// would be its own.
type runFlags struct {
	repo                     string
	committed, untracked     bool
	mounts, env, allow       []string
	image, network, provider string
	model                    string
	packages                 []string
	registries               string
	memory, cpus, disk, pids string
	timeout, workdir         string
	out, patch, json         string
	quiet, interactive       bool
	noHistory                bool
	keep                     string
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command on a copy of a repository inside a sandbox",
		Long: `Run a command inside a fresh sandbox. The repository is copied to
/workspace/repo; what the command changes there comes back as a patch and your
working tree is never touched. Files that the command leaves in
/mnt/session/outputs are copied to --out. The machine reaches nothing but what
--allow names, and is gone afterwards without a trace.

With --allow the command finds the proxy of a guard in https_proxy and its kin;
there is no other way out. What the guard refused is summed up at the end.
With --network unrestricted it has a link of its own to the internet, and to
nothing else: not to this host, private networks, or another machine.

With --model the command finds base URLs of a relay and a run token in the
variables that agents read (ANTHROPIC_BASE_URL, OPENAI_API_KEY and their kin);
the keys stay with the gateway (see checkfu model serve). What the run used is
summed up at the end, by the gateway's count.

Output streams as it comes, and checkfu ends with the command's own exit code
(see checkfu help exit-codes). With --patch - or --json - the command's
standard output goes to standard error, so that standard output holds the
document alone.

` + packagesHelp + `

With --keep what is in the machine outlives the command, whatever its exit, as a
session that is paused: its id is printed at the end, and checkfu session resume
goes on from there.

What the run gave back, with its record, is also kept in the history (see checkfu
runs --help), unless --no-history is given.

The machine's writable storage lies in memory: it can cost --memory plus --disk.
With --keep it lies on this host's disk.`,
		Example: `  checkfu run --repo . -- sh -c 'go vet ./... && go test ./...'
  checkfu run --repo .@v1.2.0 --out results --patch fix.patch -- ./agent --fix
  checkfu run --mount ./data:/data:ro --env API_KEY --timeout 90s -- python3 /data/main.py
  checkfu run --repo . --allow api.example.com:443 --allow files.example.com:443 -- ./fetch
  checkfu run --package apt:jq --package npm:prettier@3.3.3 -- sh -c 'prettier --version'
  checkfu run --repo . --model default -- ./agent --fix
  checkfu run --repo . --keep -- make test
  echo hello | checkfu run --quiet -- wc -c`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return argument.Wrong("run: expected a command after --, as in: checkfu run --repo . -- make test")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.run(cmd, f, args) },
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows COMMAND is the command's own
	flags.StringVar(&f.repo, "repo", "", "Git repository to copy in, DIR or DIR@REVISION; DIR alone is the tracked files with their uncommitted changes")
	f.machineFlags(flags)
	f.commandFlags(flags)
	flags.StringVar(&f.out, "out", "", "directory that takes the outputs")
	flags.StringVar(&f.patch, "patch", "", "file that takes the patch, - for standard output (default checkfu-RUN.patch here, when something changed)")
	flags.StringVar(&f.json, "json", "", "file that takes the record, - for standard output")
	flags.BoolVar(&f.noHistory, "no-history", false, "leave no entry in the history (see checkfu runs)")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print no summary")
	return cmd
}

// machineFlags say what the machine is and what lies in it.
func (f *runFlags) machineFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&f.committed, "committed", false, "take HEAD, without uncommitted changes")
	flags.BoolVar(&f.untracked, "untracked", false, "take untracked files too (never ignored ones)")
	flags.StringArrayVar(&f.mounts, "mount", nil, "plain directory to copy in, SRC:DST[:ro|rw], read-only by default; may be repeated")
	flags.StringVar(&f.image, "image", "", `image to run on, by name or digest (default the newest one called "base")`)
	flags.StringArrayVar(&f.packages, "package", nil, "package that the machine has, MANAGER:NAME or MANAGER:NAME@VERSION, as in apt:jq; may be repeated")
	flags.StringVar(&f.registries, "registries", "", "file that says where packages come from: mirrors, their addresses and certificates (default "+all.RegistriesFile+" in the state directory; packages of what neither names are refused)")
	flags.StringArrayVar(&f.allow, "allow", nil, "HOST:PORT that the machine reaches, through a guard; exact, no wildcard; may be repeated")
	flags.StringVar(&f.network, "network", "", "what the machine reaches: none, allowlist, which is what --allow names, or unrestricted, which is the internet (default none, allowlist with --allow)")
	flags.StringVar(&f.model, "model", "", "model gateway that the machine's programs use: its name, or the path of its control (see checkfu model serve)")
	flags.StringVar(&f.memory, "memory", "2GiB", "memory of the machine")
	flags.StringVar(&f.cpus, "cpus", "2", "cores of the machine")
	flags.StringVar(&f.disk, "disk", "4GiB", "writable storage of the machine")
	flags.StringVar(&f.pids, "pids", "512", "processes and threads of the machine")
	flags.StringVar(&f.keep, "keep", "", keepHelp)
	flags.Lookup("keep").NoOptDefVal = keepDefault
	flags.StringVar(&f.provider, "provider", all.Native, "what provides the sandbox: native (gVisor), native:runc or memory (a simulation)")
}

// commandFlags say how a command is run.
func (f *runFlags) commandFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.timeout, "timeout", "10m", "longest time that the command may take")
	flags.StringVar(&f.workdir, "workdir", "", "working directory inside (default /workspace/repo where there is a repository, else the home)")
	flags.StringArrayVar(&f.env, "env", nil, "KEY=VALUE, or KEY to pass on your own value, which then is in no process list either; values appear in no record; may be repeated")
	flags.BoolVarP(&f.interactive, "interactive", "i", false, "pass standard input on although it is a terminal")
}

func (a *app) run(cmd *cobra.Command, f runFlags, command []string) error {
	spec, err := f.spec(command)
	if err != nil {
		return err
	}
	name, err := all.Canonical(f.provider)
	if err != nil {
		return argument.Wrong("--provider: %v", err)
	}
	f.provider = name
	bar := a.progress(f.quiet)
	defer bar.end()
	signals := interruptions(func() { bar.note("checkfu: interrupting the command; Ctrl-C again ends the machine at once") })
	defer signals.end()
	spec.Stop = signals.c
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()

	spec.Progress = bar.phase
	models, err := a.route(ctx, f.model, spec.Environment)
	if err != nil {
		return err
	}
	var from *recipe.Registries
	if f.registries, from, err = registries(f.registries); err != nil {
		return err
	}
	opened, closeProvider, err := a.open(ctx, name, f.image, bar, all.Options{Model: models.leases(), Registries: from, Building: bar.building})
	if err != nil {
		return err
	}
	defer closeProvider()
	spec.Image = opened.Image
	if err := a.install(ctx, opened, spec, signals.c); err != nil {
		return err
	}
	if err := a.letOut(spec.Network, opened.Host); err != nil {
		return err
	}
	if opened.Host != nil {
		remove, err := a.stage(&spec)
		if err != nil {
			return err
		}
		defer remove()
	}

	kept, err := a.keepRun(&spec, f, models.control())
	if err != nil {
		return err
	}
	defer func() {
		if err := kept.end(a.stderr); err != nil {
			a.complain(err)
		}
	}()
	a.streams(&spec, f, bar)
	patch := a.patchSink(&spec, f)
	if patch != nil {
		defer patch.discard()
	}
	history, err := a.remember(&spec, f)
	if err != nil {
		return err
	}
	defer history.close()
	history.patch(&spec)
	r := &runner.Runner{
		Adapters: []sandboxruntime.Adapter{{Provider: opened.Provider}}, Target: opened.Envelope.Target(),
		Platform: sandbox.Platform{OS: "linux", Architecture: runtime.GOARCH}, Versions: versions(),
		Report: func(err error) { a.complain(err) }, Egress: decisions(opened.Host), Model: models.counts(),
	}
	record, err := r.Run(ctx, spec)
	bar.end()
	err = a.finish(f, record, patch, err)
	a.complete(history, f, record, patch)
	return err
}

// decisions asks a provider on this host what the guards of its machines decided.
func decisions(host all.Host) func(context.Context, sandbox.InstanceID) (runner.Egress, error) {
	if host == nil {
		return nil
	}
	return func(ctx context.Context, id sandbox.InstanceID) (runner.Egress, error) {
		d, err := host.Conclude(ctx, id)
		return egressOf(d), err
	}
}

// egressOf is a guard's word in the words of a record.
func egressOf(d native.Decisions) runner.Egress {
	e := runner.Egress{Allowed: d.Allowed, Refused: []runner.Refusal{}, Others: d.Others, GuardEnded: d.Ended}
	for _, r := range d.Refused {
		e.Refused = append(e.Refused, runner.Refusal(r))
	}
	return e
}

// stage gives the Run a directory that a sweep finds after a crash.
func (a *app) stage(spec *runner.Spec) (remove func(), err error) {
	dir, err := a.stateDir()
	if err != nil {
		return nil, err
	}
	s, err := makeScratch(dir, spec.RunID)
	if err != nil {
		return nil, err
	}
	spec.TempDir = s.dir
	return func() {
		if err := s.remove(); err != nil {
			a.complain(err)
		}
	}, nil
}

// spec is what the flags ask for, without what needs a provider. It touches
// nothing.
func (f runFlags) spec(command []string) (runner.Spec, error) {
	spec, err := f.machine()
	if err != nil {
		return spec, err
	}
	spec.OutDir = f.out
	if err := f.command(&spec, command); err != nil {
		return spec, err
	}
	return spec, f.checkTargets(spec.Repo)
}

// machine is the part of the flags that makes a machine.
func (f runFlags) machine() (runner.Spec, error) {
	spec := runner.Spec{RunID: runner.NewRunID()}
	var err error
	if f.keep != "" {
		if spec.Keep, err = keepFor("--keep", f.keep); err != nil {
			return spec, err
		}
	}
	if f.repo != "" {
		if spec.Repo, err = argument.Repo(f.repo); err != nil {
			return spec, err
		}
		spec.Repo.Committed, spec.Repo.Untracked = f.committed, f.untracked
	}
	if err := f.contradictions(spec.Repo); err != nil {
		return spec, err
	}
	for _, m := range f.mounts {
		parsed, err := argument.Mount(m)
		if err != nil {
			return spec, err
		}
		spec.Mounts = append(spec.Mounts, parsed)
	}
	if err := argument.CheckMounts(spec); err != nil {
		return spec, err
	}
	if spec.Network, err = f.policy(); err != nil {
		return spec, err
	}
	if spec.Packages, err = argument.Packages(f.packages); err != nil {
		return spec, err
	}
	return spec, f.limits(&spec)
}

// policy is what the machine may reach.
func (f runFlags) policy() (sandbox.NetworkPolicy, error) {
	p := sandbox.NetworkPolicy{Mode: sandbox.NetworkMode(f.network)}
	switch {
	case f.network == "" && len(f.allow) == 0:
		p.Mode = sandbox.NetworkNone
	case f.network == "":
		p.Mode = sandbox.NetworkAllowlist
	case !p.Mode.Valid():
		return p, argument.Unexpected("--network", "none, allowlist or unrestricted", f.network)
	case p.Mode != sandbox.NetworkAllowlist && len(f.allow) > 0:
		return p, argument.Unexpected("--network", "allowlist beside --allow", f.network)
	}
	if p.Mode != sandbox.NetworkAllowlist {
		return p, nil
	}
	p.Destinations = []sandbox.Destination{} // of nothing is a list too: it denies all
	for _, each := range f.allow {
		d, err := argument.Allow(each)
		if err != nil {
			return p, err
		}
		if !slices.Contains(p.Destinations, d) { // said twice is said once
			p.Destinations = append(p.Destinations, d)
		}
	}
	if err := p.Validate(); err != nil {
		return p, argument.Wrong("--allow: %v", err)
	}
	return p, nil
}

// command is the part of the flags that runs one.
func (f runFlags) command(spec *runner.Spec, command []string) (err error) {
	spec.Command, spec.WorkingDirectory, spec.Environment = command, f.workdir, map[string]string{}
	if spec.Timeout, err = argument.Duration("--timeout", f.timeout); err != nil {
		return err
	}
	for _, e := range f.env {
		key, value, err := argument.Env(e, os.LookupEnv)
		if err != nil {
			return err
		}
		spec.Environment[key] = value
	}
	if f.workdir != "" && f.workdir != "/" {
		if sandbox.CheckPath("workdir", f.workdir) != nil {
			return argument.Unexpected("--workdir", "a clean absolute path inside the machine", f.workdir)
		}
	}
	request := sandbox.ProcessRequest{Executable: command[0], Arguments: command[1:], WorkingDirectory: "/", Environment: map[string]string{}}
	if err := request.Validate(); err != nil {
		return argument.Wrong("command: %v", err)
	}
	return nil
}

func (f runFlags) limits(spec *runner.Spec) (err error) {
	if spec.Resources.MemoryBytes, err = argument.Size("--memory", f.memory); err != nil {
		return err
	}
	if spec.Resources.CPUMillis, err = argument.CPUs("--cpus", f.cpus); err != nil {
		return err
	}
	if spec.Resources.DiskBytes, err = argument.Size("--disk", f.disk); err != nil {
		return err
	}
	spec.Resources.MaxProcesses, err = argument.Count("--pids", f.pids)
	return err
}

// contradictions refuses flags that say nothing together.
func (f runFlags) contradictions(repo *runner.Repo) error {
	switch {
	case f.registries != "" && len(f.packages) == 0:
		return argument.Wrong("--registries: expected --package beside it")
	case repo == nil && f.committed:
		return argument.Wrong("--committed: expected --repo beside it")
	case repo == nil && f.untracked:
		return argument.Wrong("--untracked: expected --repo beside it")
	case repo == nil && f.patch != "":
		return argument.Wrong("--patch: expected --repo beside it")
	case f.committed && f.untracked:
		return argument.Wrong("--untracked: expected no --committed beside it, got both")
	case repo != nil && repo.Revision != "" && (f.committed || f.untracked):
		return argument.Wrong("--repo: expected no --committed or --untracked beside a revision, got %q with one", f.repo)
	case f.patch != "" && f.patch == f.json:
		return argument.Unexpected("--json", "another place than --patch has", f.json)
	}
	return nil
}

// checkTargets refuses result paths that cannot be written, before any work.
func (f runFlags) checkTargets(repo *runner.Repo) error {
	for _, t := range []struct{ flag, path string }{{"--patch", f.patch}, {"--json", f.json}} {
		if t.path != "" && t.path != "-" {
			if err := checkSink(t.flag, t.path); err != nil {
				return err
			}
		}
	}
	if repo != nil && f.patch == "" && unix.Access(".", unix.W_OK|unix.X_OK) != nil {
		return argument.Wrong("--patch: expected a file, since none can be written here: name one, or /dev/null for no patch")
	}
	if f.out == "" {
		return nil
	}
	if err := checkOutDir(f.out); err != nil {
		return err
	}
	return checkOutBeside(f.out, repo)
}

// streams connects the command's streams: its input is ours unless that is a
// terminal, which nobody expects to be read; then it ends at once.
func (a *app) streams(spec *runner.Spec, f runFlags, bar *progress) {
	if file, ok := a.stdin.(*os.File); a.stdin != nil && (!ok || f.interactive || !term.IsTerminal(int(file.Fd()))) {
		spec.Input = a.stdin
	}
	spec.Output, spec.Errors = a.stdout, a.stderr
	if f.patch == "-" || f.json == "-" {
		spec.Output = a.stderr
	}
	spec.Output, spec.Errors = bar.before(spec.Output), bar.before(spec.Errors)
}

// patchSink decides where the patch goes; nil is nowhere or standard output.
func (a *app) patchSink(spec *runner.Spec, f runFlags) *sink {
	switch {
	case spec.Repo == nil:
		return nil
	case f.patch == "-":
		spec.Patch = a.stdout
		return nil
	}
	s := &sink{path: f.patch}
	if f.patch == "" {
		s.path = "checkfu-" + spec.RunID + ".patch"
	}
	spec.Patch = s
	return s
}

// finish writes what the Run leaves behind and says how it went.
func (a *app) finish(f runFlags, record *runner.Record, patch *sink, runErr error) error {
	a.code = exitCode(record, runErr)
	told := ""
	if runErr != nil {
		told = explain(runErr, record).Error()
		a.complain(errors.New(told))
		if a.code == ExitUsage {
			return nil
		}
	}
	switch record.Cause {
	case runner.CauseNotFound:
		a.complain(fmt.Errorf("%s: no such command in the machine", record.Command.Arguments[0]))
	case runner.CauseNotStarted:
		var why string
		why, told = notStarted(record)
		a.complain(fmt.Errorf("%s: cannot be started in the machine: %s", record.Command.Arguments[0], why))
	}
	patchPath := ""
	if f.patch == "-" {
		patchPath = "-"
	}
	if patch != nil && (patch.opened() || f.patch != "") && collected(record) {
		if err := patch.commit(); err != nil {
			return fmt.Errorf("--patch: %w", err)
		}
		patchPath = patch.path
	}
	if f.json != "" {
		if err := a.writeRecord(f.json, record); err != nil {
			return fmt.Errorf("--json: %w", err)
		}
	}
	if !f.quiet {
		summary{record: record, provider: f.provider, code: a.code, patch: patchPath, out: f.out, told: told}.print(a.stderr)
	}
	return nil
}

// collected reports whether the repository's changes are known in full: half a
// patch is none.
func collected(r *runner.Record) bool {
	for _, failure := range r.Failures {
		if failure.Phase == runner.PhaseCollect {
			return false
		}
	}
	return len(r.Mounts) > 0 && r.Mounts[0].Collected
}

func (a *app) writeRecord(path string, record *runner.Record) error {
	data, err := record.Encode()
	if err != nil {
		return err
	}
	return a.writeDocument(path, append(data, '\n'))
}

// writeDocument writes to a file, or to standard output for "-".
func (a *app) writeDocument(path string, data []byte) error {
	if path == "-" {
		_, err := a.stdout.Write(data)
		return err
	}
	s := &sink{path: path}
	defer s.discard()
	if _, err := s.Write(data); err != nil {
		return err
	}
	return s.commit()
}

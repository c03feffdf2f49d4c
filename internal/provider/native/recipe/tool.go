package recipe

import (
	"slices"
	"strings"

	"github.com/checkfu/checkfu/sandbox"
)

// bin is where commands go: on the path of every user of the image.
const bin = "/usr/local/bin"

// each makes one step of every package: one that fails is named alone. What an
// earlier one brought is there already, so this is only for a tool that takes nothing
// from where they go.
func each(packages []sandbox.Package, missing string, argv func(sandbox.Package) []string) []Step {
	steps := make([]Step, len(packages))
	for i, p := range packages {
		steps[i] = Step{Packages: []sandbox.Package{p}, Argv: argv(p), Missing: missing}
	}
	return steps
}

func versioned(p sandbox.Package, separator string) string {
	if p.Version == "" {
		return p.Name
	}
	return p.Name + separator + p.Version
}

// npm installs packages of the registry for all users. Their scripts do not run:
// what a package is meant to be is in its archive, and what its script would
// fetch or build is bound to no digest of the registry's.
func npm(packages []sandbox.Package, from source) part {
	return part{
		env: []string{"NODE_EXTRA_CA_CERTS=" + authorities, "npm_config_userconfig=" + dir + "/npmrc"},
		steps: each(packages, lacks("npm", "npm", "apt:npm"), func(p sandbox.Package) []string {
			return []string{"npm", "install", "--global", "--prefix=/usr/local", "--ignore-scripts", "--registry=" + from.url,
				"--cafile=" + authorities, "--strict-ssl=true", "--cache=" + dir + "/npm", "--no-audit", "--no-fund", "--no-update-notifier",
				"--no-progress", "--loglevel=error", "--", versioned(p, "@")}
		}),
	}
}

// checksums is the database that every Go module is held to, whichever registry hands
// it out.
const checksums = "sum.golang.org"

// golang builds commands from source, which runs nothing of theirs. Every module
// is held to the checksum database, and no other toolchain is fetched.
func golang(packages []sandbox.Package, from source) part {
	return part{
		env: []string{
			"GOBIN=" + bin, "GOCACHE=" + dir + "/go-build", "GOENV=off", "GOFLAGS=-modcacherw -trimpath", "GOPATH=" + dir + "/go",
			"GOPROXY=" + strings.TrimSuffix(from.url, "/"), "GOSUMDB=" + checksums, "GOTELEMETRY=off", "GOTOOLCHAIN=local", "GOVCS=*:off",
		},
		steps: each(packages, lacks("go", "go", "apt:golang"), func(p sandbox.Package) []string {
			if p.Version == "" {
				p.Version = "latest"
			}
			return []string{"go", "install", "--", versioned(p, "@")}
		}),
	}
}

// pip installs wheels for all users. A source distribution is a program that runs
// when it is installed, and is refused. All of them are installed at once: of a wheel
// that is there Python runs the .pth files whenever it starts, and pip may be one of
// its files. Where they are several, each is fetched by itself first: what is wrong
// with one is then said of that one.
func pip(packages []sandbox.Package, from source) part {
	const tool = "pip3"
	missing := lacks("pip", tool, "apt:python3-pip")
	options := []string{"--no-input", "--only-binary=:all:", "--index-url=" + from.url}
	var steps []Step
	install := slices.Concat([]string{tool, "install"}, options, []string{"--"})
	for _, p := range packages {
		install = append(install, versioned(p, "=="))
		if len(packages) > 1 {
			steps = append(steps, Step{
				Packages: []sandbox.Package{p}, Missing: missing,
				Argv: slices.Concat([]string{tool, "download"}, options, []string{"--no-deps", "--dest=" + dir + "/pip", "--", versioned(p, "==")}),
			})
		}
	}
	return part{
		env: []string{
			// Not all of these are options of every pip; a variable that one does not
			// know it leaves alone.
			"PIP_BREAK_SYSTEM_PACKAGES=1", "PIP_CERT=" + authorities, "PIP_CONFIG_FILE=/dev/null", "PIP_DISABLE_PIP_VERSION_CHECK=1",
			"PIP_DEFAULT_TIMEOUT=60", "PIP_NO_CACHE_DIR=1", "PIP_PROGRESS_BAR=off", "PIP_RETRIES=2", "PIP_ROOT_USER_ACTION=ignore",
		},
		steps: append(steps, Step{Packages: packages, Argv: install, Missing: missing}),
	}
}

// gem installs gems for all users. One with an extension builds it, by a program
// of its own: gem has no way not to. What follows "--" would go to that program.
func gem(packages []sandbox.Package, from source) part {
	return part{
		steps: each(packages, lacks("gem", "gem", "apt:ruby"), func(p sandbox.Package) []string {
			argv := []string{"gem", "install", "--norc", "--no-document", "--no-user-install", "--bindir=" + bin, "--clear-sources", "--source=" + from.url}
			if p.Version != "" {
				argv = append(argv, "--version="+p.Version)
			}
			return append(argv, p.Name)
		}),
	}
}

// cargo builds commands from source. A crate with a build program runs it: cargo
// has no way not to. Those of Rust before 1.70 ask a registry of another kind.
func cargo(packages []sandbox.Package, from source) part {
	return part{
		env: []string{
			"CARGO_HOME=" + dir + "/cargo", "CARGO_HTTP_CAINFO=" + authorities, "CARGO_REGISTRIES_CRATES_IO_PROTOCOL=sparse",
			"CARGO_TARGET_DIR=" + dir + "/target", "CARGO_TERM_PROGRESS_WHEN=never", "RUSTUP_HOME=/usr/local/rustup",
		},
		steps: each(packages, lacks("cargo", "cargo", "apt:cargo"), func(p sandbox.Package) []string {
			argv := []string{
				"cargo", "--config", `source.crates-io.replace-with="mirror"`,
				"--config", `source.mirror.registry="sparse+` + strings.TrimSuffix(from.url, "/") + `/"`,
			}
			argv = append(argv, "install", "--locked", "--root=/usr/local")
			if p.Version != "" {
				argv = append(argv, "--version="+p.Version)
			}
			return append(argv, "--", p.Name)
		}),
	}
}

func lacks(manager, tool, add string) string {
	return manager + ": the image has no " + tool + "; add " + add + " or choose another base"
}

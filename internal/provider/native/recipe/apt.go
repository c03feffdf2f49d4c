package recipe

import (
	"slices"
	"strings"

	"github.com/checkfu/checkfu/sandbox"
)

// aptOptions hold whatever the image's own configuration says. What apt would
// otherwise leave to it: that lists and packages are signed; that a list which
// cannot be had is an error and not a warning; that a name is a name and no
// pattern; that nothing of the image is taken out for a package. Its own second
// user is left out: it is one more user that a sandbox cannot hold to anything.
var aptOptions = []string{
	"-o", "Dir::Etc::SourceList=/dev/null",
	"-o", "Dir::Etc::SourceParts=" + aptSources + "/sources.list.d",
	"-o", "Acquire::https::CaInfo=" + authorities,
	"-o", "Acquire::https::Verify-Peer=true",
	"-o", "Acquire::https::Verify-Host=true",
	"-o", "Acquire::AllowInsecureRepositories=false",
	"-o", "Acquire::AllowWeakRepositories=false",
	"-o", "Acquire::AllowDowngradeToInsecureRepositories=false",
	"-o", "APT::Get::AllowUnauthenticated=false",
	"-o", "APT::Update::Error-Mode=any",
	"-o", "APT::Install-Recommends=false",
	"-o", "APT::Install-Suggests=false",
	"-o", "APT::Get::Assume-Yes=true",
	"-o", "APT::Get::Remove=false",
	"-o", "quiet=1",
	"-o", "APT::Cmd::Pattern-Only=true",
	"-o", "APT::Sandbox::User=root",
	"-o", "Acquire::Languages=none",
	"-o", "Acquire::Retries=2",
	"-o", "Acquire::https::Timeout=60",
	"-o", "Dpkg::Use-Pty=false",
	"-o", "Dpkg::Options::=--force-confdef",
	"-o", "Dpkg::Options::=--force-confold",
}

// aptSources is where the machine has its copy of the image's sources: the
// image's own name archives by http, and the only way out is TLS.
const aptSources = dir + "/apt"

// anywhere is the host of sources that a mirror stands in for.
const anywhere = "archive.invalid"

// debian is a program for sed that writes the sources of a release of Debian from
// what an image says of itself, at one host. An image without sources, as those that
// checkfu builds are, has the keys of Debian all the same.
func debian(host string) string {
	const keys = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] https://"
	return `s#^VERSION_CODENAME="?([a-z]+)"?$#` + keys + host + `/debian \1 main\n` + keys + host + `/debian \1-updates main\n` +
		keys + host + `/debian-security \1-security main#w ` + aptSources + `/sources.list.d/debian.list`
}

// apt installs Debian packages from the archives that the image itself names,
// signed by the keys that it has, all of them at once. Where they are several, each
// is tried by itself first: what is wrong with one is then said of that one. In the
// end each is there by the very name that was asked for.
func apt(packages []sandbox.Package, from source) part {
	const missing = "apt: the image has no apt-get; choose a base of Debian"
	host, rewrite := from.archive, rewriting(hosts(from.destinations), `https://\2\3`)
	if from.url != "" { // whichever archive the image names
		host, rewrite = anywhere, rewriting(`[^/[:space:]]+`, strings.TrimSuffix(from.url, "/")+`\3`)
	}
	steps := []Step{
		{Argv: []string{"apt-get", "--version"}, Missing: missing},
		{Argv: []string{"mkdir", "-p", aptSources + "/sources.list.d"}},
		{Argv: []string{"cp", "-R", "/etc/apt/.", aptSources}},
		// One file and a directory of them become a directory, and one that is empty
		// then gets Debian's own archives for the image's release.
		{Argv: []string{"find", aptSources, "-maxdepth", "1", "-name", "sources.list", "-size", "+0", "-exec", "mv", "-t", aptSources + "/sources.list.d", "{}", "+"}},
		{Argv: []string{"find", aptSources + "/sources.list.d", "-maxdepth", "0", "-empty", "-exec", "sed", "-n", "-E", "-e", debian(host), "/etc/os-release", ";"}},
		{Argv: []string{"find", aptSources, "(", "-name", "*.list", "-o", "-name", "*.sources", ")", "-exec", "sed", "-i", "-E", "-e", rewrite, "{}", "+"}},
		{Argv: slices.Concat([]string{"apt-get"}, aptOptions, []string{"update"}), Missing: missing},
	}
	install := func(packages []sandbox.Package, options ...string) Step {
		argv := slices.Concat([]string{"apt-get"}, aptOptions, options, []string{"install", "--"})
		for _, p := range packages {
			argv = append(argv, versioned(p, "="))
		}
		return Step{Packages: packages, Argv: argv, Missing: missing}
	}
	if len(packages) > 1 {
		for i := range packages {
			steps = append(steps, install(packages[i:i+1], "--simulate"))
		}
	}
	// Where apt knows no package of a name that ends in a plus it takes the one that has
	// the name without it. dpkg does not, and says nothing but which one it lacks.
	installed := Step{Packages: packages, Argv: []string{"dpkg-query", `--showformat=\n`, "--show", "--"}, Missing: missing}
	for _, p := range packages {
		installed.Argv = append(installed.Argv, p.Name)
	}
	return part{
		// Whatever a package starts when it is installed would be gone with the machine.
		files: []File{{Path: "/usr/sbin/policy-rc.d", Mode: 0o755, Content: []byte("#!/bin/sh\nexit 101\n")}},
		env:   []string{"DEBIAN_FRONTEND=noninteractive", "DEBCONF_NONINTERACTIVE_SEEN=true", "APT_LISTCHANGES_FRONTEND=none", "UCF_FORCE_CONFFOLD=1"},
		steps: append(steps, install(packages), installed),
		discard: []string{
			"/etc/.pwd.lock", "/etc/group-", "/etc/gshadow-", "/etc/machine-id", "/etc/passwd-", "/etc/shadow-",
			"/var/cache/apt", "/var/cache/debconf", "/var/cache/ldconfig", "/var/lib/apt/lists", "/var/lib/dpkg/lock",
			"/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/status-old", "/var/lib/systemd/random-seed",
			"/var/log/alternatives.log", "/var/log/apt", "/var/log/dpkg.log",
		},
	}
}

// rewriting is a program for sed that leads the addresses of hosts, an expression of
// sed's, elsewhere. No byte of a mirror is one that sed reads as anything but itself.
func rewriting(hosts, to string) string {
	return `s#(https?)://(` + hosts + `)(/|[[:space:]]|$)#` + to + `#g`
}

// hosts is the expression of the hosts of destinations on the port of https.
func hosts(destinations []sandbox.Destination) string {
	var names []string
	for _, d := range destinations {
		if d.Port == 443 {
			names = append(names, strings.ReplaceAll(d.Host, ".", `\.`))
		}
	}
	return strings.Join(names, "|")
}

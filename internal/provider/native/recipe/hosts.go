package recipe

import "github.com/checkfu/checkfu/sandbox"

// official are the registries that each manager's own tool asks where nobody
// tells it otherwise. This file is the one place that names them.
var official = map[sandbox.PackageManager]registry{
	// An image names its archives itself; these are the ones that it may name.
	sandbox.ManagerApt:   {hosts: []string{"deb.debian.org", "security.debian.org"}},
	sandbox.ManagerCargo: {hosts: []string{"index.crates.io", "static.crates.io"}},
	sandbox.ManagerGem:   {url: "https://rubygems.org/", hosts: []string{"rubygems.org", "index.rubygems.org"}},
	// The proxy hands on the checksum database too; the database itself is asked
	// where a proxy does not.
	sandbox.ManagerGo:  {url: "https://proxy.golang.org", hosts: []string{"proxy.golang.org", "sum.golang.org"}},
	sandbox.ManagerNpm: {url: "https://registry.npmjs.org/", hosts: []string{"registry.npmjs.org"}},
	sandbox.ManagerPip: {url: "https://pypi.org/simple/", hosts: []string{"pypi.org", "files.pythonhosted.org"}},
}

// checksums is the database that every Go module is held to.
const checksums = "sum.golang.org"

// registry is where the packages of one manager come from.
type registry struct {
	url   string   // what the tool is told; "" where it has one of its own
	hosts []string // with TLS on port 443
}

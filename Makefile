# Checkfu. `make help` lists what can be made.
SHELL := /bin/bash
GO ?= go
VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo dev)
GVISOR = $(shell $(GO) list -m -f '{{.Version}}' gvisor.dev/gvisor)
LDFLAGS = -s -w -X $(MODULE)/internal/cli.Version=$(VERSION) -X gvisor.dev/gvisor/runsc/version.version=$(GVISOR)
MODULE = github.com/checkfu/checkfu
INIT = internal/guest/initbin/bin/checkfu-init
EGRESS = $(addprefix internal/egress/launch/bin/,checkfu-guard checkfu-relay)
STATIC = CGO_ENABLED=0 $(GO) build -trimpath
# What links gVisor is built without cgo and cannot be raced: its sentry is
# started from the very binary under test. Nor can what confines all threads of
# the binary under test, or searches its memory, which the detector makes vast.
PRODUCT = $(shell $(GO) list ./... | grep -E '/(cmd/checkfu(-guard|-relay)?$$|internal/cli|internal/provider/all|internal/provider/native|internal/egress/(canary|confine|daemon|launch|matrix)$$|bench|tests/)')
RACED = $(shell $(GO) list ./... | grep -vE '/(cmd/checkfu(-guard|-relay)?$$|internal/cli|internal/provider/all|internal/provider/native|internal/egress/(canary|confine|daemon|launch|matrix)$$|bench|tests/)')
# What is too much for the race detector is raced in part (-short), and run
# whole without it: the suites and the ends of a wire here, the saboteurs as the
# matrix in tests/conformance.
WHOLE = $(filter %/wire/client %/wire/server,$(RACED)) $(foreach p,$(RACED),$(if $(findstring /internal/suite/,$(p)),$(p)))
PARTLY = $(WHOLE) $(filter %/sandboxtest,$(RACED))
# The longest first: they are run side by side, and each looks at nothing but its
# own. The examples come last and alone: a process whose reader is starved is
# ended by name, and theirs share two cores among themselves already.
LONGEST = $(addprefix $(MODULE)/,tests/conformance internal/provider/native tests/wire tests/e2e)
ALONE = $(MODULE)/tests/examples
FUZZTIME ?= 10m

.PHONY: help build build-arm64 demo test test-race test-product arch lint soak fuzz bench base clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /  \1\t/' | expand -t 16

$(INIT): $(shell find cmd/checkfu-init internal/guest -name '*.go' -not -path '*/initbin/*' -not -name '*_test.go')
	$(STATIC) -ldflags="-s -w" -o $@ ./cmd/checkfu-init

# Reproducible: receipts name a guard by the digest of its binary.
$(EGRESS): internal/egress/launch/bin/%: $(shell find cmd/checkfu-guard cmd/checkfu-relay internal/egress internal/canonical sandbox -name '*.go' -not -path '*/launch/*' -not -name '*_test.go') go.sum
	$(STATIC) -buildvcs=false -ldflags="-s -w" -o $@ ./cmd/$*

build: $(INIT) $(EGRESS) ## build bin/checkfu, one static file with the sandbox in it
	$(STATIC) -ldflags="$(LDFLAGS)" -o bin/checkfu ./cmd/checkfu

# The programs that checkfu carries are laid over those of this machine.
build-arm64: ## cross-build for arm64 (built, not run)
	mkdir -p out/arm64
	GOARCH=arm64 $(STATIC) -ldflags="-s -w" -o out/arm64/ ./cmd/checkfu-init
	GOARCH=arm64 $(STATIC) -buildvcs=false -ldflags="-s -w" -o out/arm64/ $(patsubst internal/egress/launch/bin/%,./cmd/%,$(EGRESS))
	@printf '{"Replace": {%s}}' "$$(for f in $(INIT) $(EGRESS); do printf '%s"%s": "%s"' "$$sep" "$(CURDIR)/$$f" "$(CURDIR)/out/arm64/$${f##*/}"; sep=', '; done)" >out/arm64/overlay.json
	GOARCH=arm64 $(STATIC) -overlay out/arm64/overlay.json -ldflags="$(LDFLAGS)" -o out/arm64/checkfu ./cmd/checkfu

demo: build ## set up what it needs and run a command on a repository inside a sandbox
	./demo/run

test: lint arch build test-race test-product ## everything, about 17 minutes on 2 cores

test-race: $(INIT) $(EGRESS) ## all packages that do not link gVisor, with the race detector
	$(GO) test -race -timeout 10m $(filter-out $(PARTLY),$(RACED))
	$(GO) test -race -short -timeout 10m $(PARTLY)
	$(GO) test -timeout 10m $(WHOLE)

test-product: build ## the packages and the commands that start real sandboxes, as root
	@test "$$(id -u)" = 0 || { echo "make test: needs root: what it tests starts real sandboxes"; exit 1; }
	CGO_ENABLED=0 $(GO) test -p 2 -timeout 14m $(LONGEST) $(filter-out $(LONGEST) $(ALONE),$(PRODUCT))
	CGO_ENABLED=0 $(GO) test -timeout 14m $(ALONE)

arch: ## the house rules: who imports whom, sizes, comments
	$(GO) test ./tests/arch

lint: $(INIT) $(EGRESS) ## formatting, vet on linux and macOS, staticcheck
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo "run gofmt -w"; exit 1; }
	CGO_ENABLED=0 $(GO) vet ./...
	GOOS=darwin CGO_ENABLED=0 $(GO) vet ./sandbox/...
	GOARCH=arm64 CGO_ENABLED=0 $(GO) vet ./sandbox/... ./internal/contain/... ./internal/guest/... ./cmd/checkfu-guard ./cmd/checkfu-relay ./internal/egress/launch
	CGO_ENABLED=0 $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.6.1 ./...

soak: build ## 500 lives of machines on each driver, half of them killed; nothing may be left
	CHECKFU_TEST_SOAK=500 CGO_ENABLED=0 $(GO) test -count=1 -v -timeout 60m -run '^TestSoak$$' ./tests/e2e

fuzz: ## every fuzz target for FUZZTIME each
	@set -e; for dir in $$(grep -rl '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u); do \
	  for f in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]+' $$dir/*_test.go | sed 's/func //' | sort -u); do \
	    echo "== $$dir $$f"; CGO_ENABLED=0 $(GO) test $$dir -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME); done; done

base: ## build the Debian base image twice and compare the digests
	CHECKFU_TEST_BUILD=twice $(GO) test -count=1 -v -run 'TestBuildBase$$' ./internal/image

bench: build ## measure against the raw primitives in one run (bench/README.md)
	CGO_ENABLED=0 $(GO) run ./bench

clean: ## remove what was built
	rm -rf bin out $(INIT) $(EGRESS)

# What one does with this repository. It takes Go, git and make; every other tool
# is a Go module, pinned in go.tools.mod or built from source. `make` prints the
# targets.

# The first that fails ends a run, and prerequisites run in the order written.
.NOTPARALLEL:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

GO      ?= go
TOOL    := $(GO) tool -modfile=go.tools.mod
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)

# More arguments for e2e (`-run TestPizza -v`), bench and demo.
ARGS ?=

# Runs the stages of `make test`, and tests: see test/run. It takes the place of the
# shell, so that a signal which make passes on reaches it.
RUN := exec env GO=$(GO) MAKE=$(MAKE) bin/test-run

# Packages of benchmarks that start control planes of their own.
BENCH := ^refract\.dev/test/bench(/|$$)

# Everything is compiled with the same flags, which are none: what is built, tested and
# linted then finds what the others have compiled, and so do control planes, and
# `go test` as you run it. Only the race detector takes packages of its own.

say = @echo '==> $(1)'

.PHONY: help
help: ## Print this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## Build bin/refract.
	$(call say,building bin/refract $(VERSION))
	@{ $(GO) build -v -buildvcs=false -ldflags '-X refract.dev/internal/cli.version=$(VERSION)' -o bin/refract ./cmd/refract 2>&1; echo "exit $$?"; } | \
	awk -v all="$$($(GO) list -deps -f '{{if .Stale}}{{.ImportPath}}{{end}}' ./cmd/refract | grep -c .)" -f controlplane/progress.awk
	@ln -sf refract bin/kubectl-refract
	@ln -sf refract bin/kubectl_complete-refract

# Where install puts things: below $(DESTDIR)$(PREFIX).
PREFIX ?= /usr/local

.PHONY: install
install: build ## Install refract, the kubectl plugin, man pages and completion. PREFIX says where.
	$(call say,installing into $(DESTDIR)$(PREFIX))
	@set -eu; to='$(DESTDIR)$(PREFIX)'; \
	mkdir -p "$$to/bin" "$$to/share/man/man1" "$$to/share/bash-completion/completions" "$$to/share/zsh/site-functions" "$$to/share/fish/vendor_completions.d"; \
	cp bin/refract "$$to/bin/"; \
	ln -sf refract "$$to/bin/kubectl-refract"; \
	ln -sf refract "$$to/bin/kubectl_complete-refract"; \
	cp docs/man/*.1 "$$to/share/man/man1/"; \
	bin/refract completion bash >"$$to/share/bash-completion/completions/refract"; \
	bin/refract completion zsh >"$$to/share/zsh/site-functions/_refract"; \
	bin/refract completion fish >"$$to/share/fish/vendor_completions.d/refract.fish"

# What make dist builds for, and where image pushes to.
PLATFORMS ?= linux/amd64,linux/arm64,darwin/amd64,darwin/arm64

.PHONY: dist
dist: ## Make what is released into bin/dist: archives, bills of materials, an image, the chart, checksums. PLATFORMS says for what, KEY=FILE signs the image.
	$(call say,making what is released into bin/dist (every platform is compiled anew at first))
	@cd dist && $(GO) run . -platforms '$(PLATFORMS)' -key '$(if $(KEY),$(abspath $(KEY)))'

.PHONY: test-dist
test-dist: ## Test what makes releases, with programs that stand for refract.
	$(call say,testing what makes releases)
	@cd dist && $(GO) test ./...

.PHONY: charts
charts: ## Render config/install and config/rbac from the Helm chart (builds the libraries of Helm at first).
	$(call say,rendering config/install and config/rbac)
	@cd charts && $(GO) run . render

# Files outside of a module are no reason for go test to run again what passed: so say it.
.PHONY: test-charts
test-charts: ## Test the Helm chart, and that config/install and config/rbac are what it gives.
	$(call say,testing the Helm chart (builds the libraries of Helm at first))
	@cd charts && $(GO) test -count 1 ./...

.PHONY: image
image: ## Push the image that make dist has made. PUSH=REGISTRY/NAME:TAG says where to.
	@test -n '$(PUSH)' || { echo 'PUSH=REGISTRY/NAME:TAG says where to push the image' >&2; exit 1; }
	@cd dist && $(GO) run . -push '$(PUSH)'

.PHONY: controlplane
controlplane: ## Build etcd, Kubernetes and kwok into bin/: minutes at first, then seconds.
	$(call say,building control planes (minutes at first))
	@$(MAKE) -C controlplane

.PHONY: generate
generate: ## Regenerate deep copies, CRDs, schemas and the reference of the commands.
	$(call say,generating)
	@$(GO) generate ./...

.PHONY: verify-generated
verify-generated: ## Fail if `make generate` changes a file. It is up to date then.
	$(call say,checking that generated files are up to date)
	@set -eu; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; trap 'exit 1' INT TERM; \
	copy() { mkdir "$$tmp/$$1"; tar -cf - --exclude=./.git --exclude=./bin --exclude=./.refract . | tar -xf - -C "$$tmp/$$1"; }; \
	copy before; \
	$(GO) generate ./...; \
	copy after; \
	(cd "$$tmp" && git --no-pager diff --no-index --exit-code before after) || \
	{ echo 'Generated files were not up to date. Now they are: commit them.' >&2; exit 1; }

.PHONY: lint
lint: verify-generated ## Run the linters, go vet among them, and verify-generated.
	$(call say,linting (builds the linter at first))
	@$(TOOL) golangci-lint run ./...

bin/test-run: FORCE
	@$(GO) build -buildvcs=false -o $@ ./test/run

# Keeps control planes for tests.
bin/test-clusters: FORCE
	@$(GO) build -buildvcs=false -o $@ ./test/harness/keep

.PHONY: FORCE
FORCE:

.PHONY: unit
unit: bin/test-run ## Run the tests that need no control plane. ARGS goes to go test.
	$(call say,running tests without control planes)
	@$(RUN) unit $(ARGS)

.PHONY: faults
faults: ## Ask whether the model checker of rollouts finds each of a list of faults: minutes.
	$(call say,having the model checker find faults)
	@REFRACT_FAULTS=1 $(GO) test -count=1 -vet=off -run 'TestFaults$$' -v ./fleet/policy/rollout

# Histories that make simulate goes through: so many SEEDS from FIRST on, of so many STEPS. SEED=N tells that one as a story; KEEP=1
# goes on after a violation. HISTORIES is the number of those that make test runs.
HISTORIES ?= 200
SEEDS ?= 1000
STEPS ?= 300
FIRST ?= 1

bin/test-simulate: FORCE
	@$(GO) build -buildvcs=false -o $@ ./test/simulate/coverage

.PHONY: simulate
simulate: bin/test-simulate ## Run the real controllers through histories full of faults: SEEDS=1000 STEPS=300 FIRST=1, or SEED=N for the story of one.
	$(call say,simulating)
	@exec env GO=$(GO) bin/test-simulate -seeds=$(SEEDS) -steps=$(STEPS) -first=$(FIRST) $(if $(SEED),-seed=$(SEED)) $(if $(KEEP),-keep)

.PHONY: histories
histories: ## Run the histories that make test runs: HISTORIES=200 of 25 steps.
	@$(MAKE) simulate SEEDS=$(HISTORIES) STEPS=25 FIRST=116 SEED= KEEP=

.PHONY: e2e
e2e: build controlplane bin/test-run bin/test-clusters ## Run the tests against real control planes. ARGS goes to go test.
	$(call say,running tests with control planes)
	@$(RUN) live $(ARGS)

.PHONY: check
check: build bin/test-run ## Build, lint what differs from the last commit, and run unit tests without the race detector.
	@set -eu; pkgs=$$({ git diff --name-only --diff-filter=d HEAD -- '*.go'; git ls-files --others --exclude-standard -- '*.go'; } | \
	grep -v '^controlplane/' | xargs -r -n 1 dirname | sort -u | sed 's,^,./,'); \
	test -z "$$pkgs" || { echo "==> linting" $$pkgs; $(TOOL) golangci-lint run $$pkgs; }
	$(call say,running unit tests)
	@$(RUN) quick $(ARGS)

.PHONY: test
test: bin/test-run ## Run all checks and tests, and say what took how long.
	@$(RUN) stages build lint unit histories test-dist test-charts controlplane e2e

.PHONY: node
node: build controlplane ## Build what a Node runs into bin/node: the kubelet, containerd, runc, Refract's image, and helm.
	$(call say,building what a Node runs)
	@$(MAKE) -C controlplane node
	@$(GO) build -buildvcs=false -o bin/node/pod ./test/node/pod
	@cd charts && $(GO) build -o ../bin/node/helm helm.sh/helm/v4/cmd/helm
	@cd dist && $(GO) run . -platforms "linux/$$($(GO) env GOARCH)" -out ../bin/node/dist

.PHONY: root
root:
	@test "$$(id -u)" = 0 || { echo 'error: containers take root: run make test-node as root, on Linux' >&2; exit 1; }

.PHONY: test-node
test-node: root node bin/test-run ## Run the tests on a real Node: as root, on Linux. ARGS goes to go test.
	$(call say,running tests on a real Node)
	@$(RUN) node $(ARGS)

# The browser, and the program that finds what keeps people from using a page. Both are those of the distribution and of npm.
AXE_VERSION := 4.14.1
.PHONY: browser
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { \
	test "$$(id -u)" = 0 && command -v apt-get >/dev/null || { echo 'error: install Chromium, or run this as root where apt-get can' >&2; exit 1; }; \
	echo '==> installing Chromium'; apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; }
	@test -f bin/browser/axe.min.js || { \
	command -v npm >/dev/null || { echo 'error: install npm, which gets axe-core' >&2; exit 1; }; \
	set -e; mkdir -p bin/browser; cd bin/browser; npm pack --silent axe-core@$(AXE_VERSION) >/dev/null; \
	tar -xzf axe-core-$(AXE_VERSION).tgz --strip-components=1 package/axe.min.js; rm axe-core-$(AXE_VERSION).tgz; }

.PHONY: test-browser
test-browser: build controlplane browser bin/test-run ## Run the tests of refract ui in Chromium. ARGS goes to go test.
	$(call say,running tests in a browser)
	@$(RUN) browser $(ARGS)

.PHONY: screenshots
screenshots: build browser ## Make the pictures of README.md and the guide.
	@REFRACT_SCREENSHOTS=$(CURDIR)/docs/images REFRACT_TEST_BINARY=$(CURDIR)/bin/refract $(GO) test -count 1 -run '^TestScreenshots$$' ./test/browser

.PHONY: soak
soak: build controlplane bin/test-run ## Run the drills with long outages and many repetitions: half an hour. ARGS goes to go test.
	$(call say,running long drills)
	@export REFRACT_SOAK=1; $(RUN) live -timeout=60m ./test/drills ./test/adversary $(ARGS)

.PHONY: verify
verify: test ## What CI runs.

.PHONY: bench
bench: build controlplane bin/test-run ## Run the benchmarks: of the code, then of whole control planes. ARGS goes to go test.
	$(call say,running benchmarks of the code)
	@$(RUN) benchmarks $(ARGS)
	$(call say,running benchmarks of control planes)
	@set -eu; pkgs=$$($(GO) list ./... | grep -E '$(BENCH)'); \
	KUBEBUILDER_ASSETS=$(CURDIR)/bin REFRACT_TEST_BINARY=$(CURDIR)/bin/refract \
	$(GO) test -p 1 -count 1 -timeout 20m -run '^$$' -bench . -benchtime 1x $$pkgs $(ARGS)

.PHONY: bench-smoke
bench-smoke: build controlplane ## Fail if a figure that docs/performance.md promises is half as bad again: two minutes.
	$(call say,comparing figures with the recorded ones)
	@KUBEBUILDER_ASSETS=$(CURDIR)/bin REFRACT_TEST_BINARY=$(CURDIR)/bin/refract \
	$(GO) test -count 1 -timeout 10m -run '^$$' -bench 'Smoke$$' -benchtime 1x ./test/bench $(ARGS)

.PHONY: demo
demo: build controlplane ## Show Refract at work on local control planes. ARGS goes to refract demo.
	$(call say,starting the demo)
	@bin/refract demo $(ARGS)

.PHONY: demo-pizza
demo-pizza: build controlplane ## Show custom resources that evolve: the pizza restaurant.
	$(call say,opening the restaurant)
	@$(GO) run ./examples/pizza/demo

.PHONY: clean
clean: ## Remove what make and refract have put here.
	$(call say,cleaning)
	@rm -rf bin .refract

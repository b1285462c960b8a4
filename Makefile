# What one does with this repository. It takes Go, git and make; every other tool
# is a Go module, pinned in go.tools.mod or built from source. `make` prints the
# targets.

# The first that fails ends a run, and prerequisites run in the order written.
.NOTPARALLEL:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

GO      ?= go
TOOL    := $(GO) tool -modfile=go.tools.mod
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo devel)

# More arguments for e2e (`-run TestPizza -v`), bench and demo.
ARGS ?=

# The race detector takes a C compiler. Without one Go turns cgo off.
RACE := $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)

# Packages whose tests or benchmarks start real control planes.
LIVE  := ^refract\.dev/(internal/playground|internal/(webhook|injection|evolution/serve)/live|test/(e2e|injection|shards|drills|tenancy|simulation|structural|pipeline|admission|pizza(/demo)?|migration|evolution|conversion))$$
BENCH := ^refract\.dev/test/bench(/|$$)

# Packages that go through hundreds of fleets, or start the command hundreds of times,
# one after the other: a race detector would have nothing to find, and take minutes.
SERIAL := ^refract\.dev/(test/(generate|offline)|internal/cli)(/|$$)

# Real control planes run one package after the other, as two of them starve
# each other on two cores, and never from the cache, which does not know the
# programs that a test starts.
LIVETEST := KUBEBUILDER_ASSETS=$(CURDIR)/bin $(GO) test -p 1 -count 1 -timeout 20m

# $(call packages,GREP) sets $pkgs to the packages that grep GREP selects. If
# there are none it ends the recipe; if go list fails, so does the recipe.
packages = set -eu; all=$$($(GO) list ./...); \
	pkgs=$$(printf '%s\n' "$$all" | grep -E $(1)) || { echo 'no packages'; exit 0; }

say = @echo '==> $(1)'

.PHONY: help
help: ## Print this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## Build bin/refract.
	$(call say,building bin/refract $(VERSION))
	@$(GO) build -trimpath -buildvcs=false -ldflags '-X refract.dev/internal/cli.version=$(VERSION)' -o bin/refract ./cmd/refract
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

.PHONY: controlplane
controlplane: ## Build etcd, Kubernetes and kwok into bin/: minutes at first, then seconds.
	$(call say,building control planes (minutes at first))
	@$(MAKE) -C controlplane

.PHONY: generate
generate: ## Regenerate deep copies, CRDs, schemas and the reference of the commands.
	$(call say,generating)
	@$(GO) generate ./...

.PHONY: verify-generated
verify-generated: ## Fail if `make generate` would change a file.
	$(call say,checking that generated files are up to date)
	@set -eu; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; trap 'exit 1' INT TERM; \
	mkdir "$$tmp/now" "$$tmp/generated"; \
	tar -cf "$$tmp/all.tar" --exclude=./.git --exclude=./bin --exclude=./.refract .; \
	tar -xf "$$tmp/all.tar" -C "$$tmp/now"; \
	tar -xf "$$tmp/all.tar" -C "$$tmp/generated"; \
	(cd "$$tmp/generated" && $(GO) generate ./...); \
	(cd "$$tmp" && git --no-pager diff --no-index --exit-code now generated) || \
	{ echo 'Generated files are not up to date: run `make generate`.' >&2; exit 1; }

.PHONY: lint
lint: verify-generated ## Run the linters, go vet and verify-generated.
	$(call say,linting (builds the linter at first))
	@$(TOOL) golangci-lint run ./...
	$(call say,vetting)
	@$(GO) vet ./...

.PHONY: unit
unit: ## Run the tests that need no control plane.
	$(call say,running unit tests $(or $(RACE),(without -race: there is no C compiler)))
	@$(call packages,-v -e '$(LIVE)' -e '$(BENCH)' -e '$(SERIAL)'); $(GO) test -timeout 30m $(RACE) $$pkgs
	$(call say,running tests of generated fleets and of the commands)
	@$(call packages,'$(SERIAL)'); $(GO) test -timeout 30m $$pkgs

.PHONY: e2e
e2e: controlplane ## Run the tests against real control planes. ARGS goes to go test.
	$(call say,running tests against real control planes)
	@$(call packages,'$(LIVE)'); $(LIVETEST) $$pkgs $(ARGS)

.PHONY: test
test: build lint unit e2e ## Run all checks and tests, those first that fail fastest.

.PHONY: verify
verify: test ## What CI runs.

.PHONY: bench
bench: controlplane ## Run the benchmarks: of the code, then of whole control planes. ARGS goes to go test.
	$(call say,running benchmarks of the code)
	@$(call packages,-v -e '$(LIVE)' -e '$(BENCH)'); $(GO) test -run '^$$' -bench . -benchmem $$pkgs $(ARGS)
	$(call say,running benchmarks of control planes)
	@$(call packages,'$(BENCH)'); $(LIVETEST) -run '^$$' -bench . -benchtime 1x $$pkgs $(ARGS)

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

.DEFAULT_GOAL := help
TOOL := go tool -modfile=hack/tools/go.mod
LINT := go tool -modfile=hack/lint/go.mod

# One static binary: nothing of the machine that it is built on is needed where it runs.
export CGO_ENABLED := 0

.PHONY: help
help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: build ## Run the main job on a control plane in a box (DEMO_EXIT=1 ends it once all is Ready)
	@bin/playground demo --sluice bin/sluice --examples examples

.PHONY: build
build: ## Build bin/sluice and bin/playground
	go build -o bin/progress ./hack/progress
	bin/progress sluice go build -ldflags '-s -w' -o bin/sluice ./cmd/sluice
	cd playground && ../bin/progress playground go build -o ../bin/playground ./cmd/playground

.PHONY: image
image: ## Build the container image for amd64 and arm64 as OCI layout bin/image (PUSH=HOST/REPOSITORY pushes it)
	go run ./hack/image --version $(or $(VERSION),dev) $(if $(PUSH),--push $(PUSH)) $(IMAGE_FLAGS)

.PHONY: release
release: ## Build all files of a release into bin/release: make release VERSION=v1.2.3 [PUSH=HOST/REPOSITORY]
	go run ./hack/release --version "$(VERSION)" $(if $(PUSH),--push --repository $(PUSH)) $(RELEASE_FLAGS)

.PHONY: registry-login
registry-login: ## Log in to the registry of PUSH as $REGISTRY_USER with $REGISTRY_TOKEN
	@printf %s "$$REGISTRY_TOKEN" | docker login $(firstword $(subst /, ,$(PUSH))) --username "$$REGISTRY_USER" \
		--password-stdin

.PHONY: publish
publish: ## Create the release VERSION on GitHub, with bin/release and its section of CHANGELOG.md (needs gh)
	hack/publish "$(VERSION)"

.PHONY: ci
ci: ## Run all checks that a change must pass
	.ci/run

.PHONY: test
test: build ## Run all tests but the long ones, against a real kube-apiserver (PACKAGES=./internal/gate runs these)
	bin/progress tests go list -export -test ./... > /dev/null
	go build -o bin/test ./hack/test
	bin/test $(PACKAGES)

.PHONY: test-full
test-full: build ## Run the long tests: experiments, releases, all generated cases (BUDGET=20m ends them then)
	go build -o bin/test ./hack/test
	bin/test -full $(if $(BUDGET),-budget $(BUDGET))

.PHONY: test-ui
test-ui: build ## Test the web UI in Chromium (IMAGES=DIR writes screenshots; installs Chromium and Node if missing)
	hack/testui $(if $(IMAGES),-images "$(abspath $(IMAGES))")

.PHONY: test-rules
test-rules: ## Test the rules for Prometheus and the queries of the dashboards (fetches promtool if missing)
	hack/testrules

.PHONY: upgrade-test
upgrade-test: build ## Run the older binary OLD, this build, and OLD again on the same objects (RECORD=DIR writes its state)
	SLUICE_UPGRADE_FROM="$(abspath $(OLD))" SLUICE_UPGRADE_RECORD="$(if $(RECORD),$(abspath $(RECORD)))" \
		go test -count=1 -timeout 30m -run TestUpgradeAndDowngrade ./test/e2e

.PHONY: generate
generate: ## Generate CRDs, deepcopy, RBAC, definitions of Kubernetes, the Helm chart, the kustomize base and the dashboards
	$(TOOL) controller-gen object paths=./api/...
	hack/joinmarkers .cache/api
	cd .cache/api && go tool -modfile=$(CURDIR)/hack/tools/go.mod controller-gen crd:generateEmbeddedObjectMeta=false \
		paths=./api/... output:crd:artifacts:config=$(CURDIR)/config/crd
	rm -rf .cache/api
	go run ./hack/unionversions config/crd api/older
	$(TOOL) controller-gen rbac:roleName=sluice-controller paths=./internal/... output:rbac:artifacts:config=config/rbac
	go run ./hack/openapi
	go run ./hack/charts .
	go run ./hack/dashboards config/monitoring/dashboards

.PHONY: web
web: ## Build the front end of the web UI into web/dist (installs Node if missing)
	hack/needs node npm
	cd web && npm ci --no-audit --no-fund && npm run build

.PHONY: lint
lint: ## Run the linters, with the layer rules
	go run ./hack/guarded ./internal ./cmd
	go run ./hack/hints internal cmd test hack playground
	$(LINT) golangci-lint run --allow-parallel-runners ./...

.PHONY: docs
docs: ## Build docs/ as a site with search into bin/site (VERSION=v1.2.3; default: the newest tag; installs Node)
	hack/needs node npm
	cd hack/site && npm ci --no-audit --no-fund && node build.mjs ../../bin/site "$(VERSION)"

.PHONY: bench
bench: build ## Print what a change costs: requests, bytes, allocations, ratios to the raw operation
	go test -run '^$$' -bench . -benchtime 1x -timeout 2h ./bench/... $(BENCH)

.PHONY: fuzz
fuzz: ## Run every fuzz target for a short while
	hack/fuzz 20s

.PHONY: campaign
campaign: build ## Run the experiments of docs/design/robustness.md overnight, an hour each at most; CAMPAIGN='-run Clock -campaign.scale 0.1' runs less
	go test ./test/campaign -count 1 -v -timeout 14h -campaign.full -campaign.limit 1h $(CAMPAIGN)

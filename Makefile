# `make demo` and `make test` do all of their set-up by themselves.
.DEFAULT_GOAL := help
SHELL := /bin/bash

python := .venv/bin/python
go_sources := $(shell find testbed scheduler -name '*.go' -o -name 'go.*') scripts/build-testbed
demo_dir ?= .cache/demo

.PHONY: help
help: ## show what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 16

.venv/.complete: pyproject.toml requirements/dev.txt scripts/setup-python
	@scripts/setup-python

bin/testbed: .venv/.complete $(go_sources)
	@scripts/build-testbed

.PHONY: qemu
qemu:
	@scripts/setup-qemu

.cache/guest/complete: bin/testbed $(wildcard tests/guest/*) scripts/build-guest
	@echo "Building the test guest from Debian's kernel and busybox ..."
	@scripts/build-guest

bin/helm: .venv/.complete tools/go.mod tools/go.sum
	@scripts/build-tools

# What has not changed is not built again: see scripts/build-image.
.PHONY: images
images: .venv/.complete .cache/guest/complete ## build the images of operator, runner and scheduler without a container engine, in .cache/images
	@scripts/build-images

.PHONY: build
build: bin/testbed ## build bin/testbed and bin/kubectl

.PHONY: demo
demo: bin/testbed qemu .cache/guest/complete ## a VM grows on a full node because its neighbour is moved: the whole story
	@$(python) examples/demo.py --dir $(demo_dir)

.PHONY: demo-down
demo-down: ## stop the demo's cluster
	@bin/testbed down --dir $(demo_dir)

.PHONY: test
test: bin/testbed bin/helm qemu .cache/guest/complete images ## run the tests, but for those of `make soak`
	@scripts/setup-test-tools
	@for module in scheduler testbed; do (cd $$module && ../scripts/go test -vet=off $$(../scripts/go list -f "{{if .TestGoFiles}}{{.ImportPath}}{{end}}" ./...)) || exit; done
	@$(python) -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

.PHONY: soak
soak: bin/testbed qemu .cache/guest/complete ## all that can disturb a scale-up, and the long forms of what `make test` does a few times: twenty moves in a row, a hundred races
	@scripts/setup-test-tools
	@$(python) -m pytest tests/soak $(ARGS)
	@MOVES=20 RACES=100 $(python) -m pytest tests/integration/test_move.py tests/integration/test_move_faults.py -k "race or in_a_row"

.PHONY: explore
explore: .venv/.complete ## try every interleaving of small worlds with the shipped decisions, and walk through all with three faults (WORLDS='"in place" "a thief"' for some, MOST=… states of each)
	@PYTHONPATH=tests $(python) -m explore $(WORLDS)

.PHONY: lint
lint: .venv/.complete ## check style, types and layers
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports --cache-dir .cache/import-linter | tail -n 4
	@.venv/bin/shellcheck .ci/run $$(grep -lE '^#!.*bash' scripts/*)
	@scripts/check-gofmt
	@cd scheduler && ../scripts/go vet ./...
	@cd testbed && ../scripts/go vet ./...
	@cd tests/guest && ../../scripts/go vet ./...

.PHONY: format
format: .venv/.complete ## put the code into shape
	@.venv/bin/ruff check --fix . ; .venv/bin/ruff format .
	@PATH="$$(scripts/setup-go):$$PATH" gofmt -w scheduler testbed tests/guest bench/scheduler

.PHONY: crds
crds: .venv/.complete ## write crds/, and the chart's copy of it, anew from the models
	@$(python) -m elbowroom.api.crds crds charts/elbowroom/files/crds

.PHONY: states
states: .venv/.complete ## draw docs/states.md anew from the code that decides
	@$(python) scripts/draw_states.py

.PHONY: reference
reference: .venv/.complete ## write docs/api.md and docs/reasons.md anew from the models and the reasons
	@$(python) scripts/write_reference.py

.PHONY: site
site: .venv/.complete ## build the docs as a site, in .cache/site/html
	@scripts/build-site

.PHONY: pictures
pictures: bin/testbed qemu .cache/guest/complete ## take the pictures of the live page anew, from a real move
	@scripts/setup-test-tools
	@PYTHONPATH=examples:tests $(python) scripts/take_pictures.py

.PHONY: lock
lock: .venv/.complete ## write requirements/*.txt anew
	@.venv/bin/pip install --quiet --disable-pip-version-check uv
	@for extra in run dev; do \
	  .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --custom-compile-command "make lock" --extra $${extra/run/traces} pyproject.toml -o requirements/$$extra.txt; done

NODES ?= 100
SEED ?= 1
HOURS ?= 24
.PHONY: simulate
simulate: .venv/.complete ## simulate a day in a cluster with four policies (NODES=100 SEED=1 HOURS=24)
	@PYTHONPATH=bench $(python) -m simulate --nodes $(NODES) --seed $(SEED) --hours $(HOURS)

.PHONY: bench-simulate
bench-simulate: .venv/.complete ## the same with 1,000 nodes and 20,000 VMs, write docs/benchmarks/simulation.md
	@PYTHONPATH=bench $(python) -m simulate --nodes 1000 --seed $(SEED) --write docs/benchmarks

.PHONY: bench-plan
bench-plan: .venv/.complete ## measure what one plan costs on a node with 250 pods, write docs/benchmarks/plan.md
	@PYTHONPATH=bench $(python) bench/plan.py

.PHONY: bench-testbed
bench-testbed: bin/testbed ## measure the testbed's start and memory
	@PYTHONPATH=tests $(python) bench/testbed.py

.PHONY: bench-migration
bench-migration: bin/testbed qemu .cache/guest/complete ## compare the runner's moves with bare QEMU's, write docs/benchmarks/migration.md
	@PYTHONPATH=tests:bench $(python) bench/migration.py

.PHONY: bench-holds
bench-holds: bin/testbed ## measure how soon the scheduler acknowledges a hold (HOLDS=40)
	@PYTHONPATH=tests $(python) bench/holds.py

.PHONY: bench-scheduler
bench-scheduler: bin/testbed ## compare the scheduler's throughput with stock's, write docs/benchmarks/scheduler.md (NODES=500 for a short form, TURNS=5)
	@cd bench/scheduler && ../../scripts/go test -trimpath=false -c -o ../../.cache/scheduler-perf .
	@NODES="$(if $(filter command line environment,$(origin NODES)),$(NODES),500 5000)" $(python) bench/scheduler/compare.py

.PHONY: bench-scale
bench-scale: bin/testbed ## what a large cluster costs the operator, write docs/benchmarks/scale.md (NODES=1000 PODS=20000 REQUESTS=200; long form 5000, 100000)
	@NODES="$(if $(filter command line environment,$(origin NODES)),$(NODES),1000)" PYTHONPATH=tests $(python) bench/scale.py

.PHONY: bench-scaleup
bench-scaleup: bin/testbed qemu .cache/guest/complete ## compare a scale-up with a script that makes the same calls, write docs/benchmarks/scaleup.md (RUNS=8)
	@PYTHONPATH=tests $(python) bench/scaleup.py

.PHONY: bench-thieves
bench-thieves: bin/testbed qemu .cache/guest/complete ## everybody wants the room at once, in six orders, write docs/benchmarks/thieves.md (N=100; N=10 for a short form)
	@PYTHONPATH=tests:bench $(python) -m thieves

.PHONY: bench-guard
bench-guard: bin/testbed ## what the guard costs: answers, a storm of bindings, the scheduler's throughput, write docs/benchmarks/guard.md (NODES=5000 HOLDS=1000 PAIRS=5)
	@PYTHONPATH=tests:bench $(python) bench/guard.py

.PHONY: clean
clean: ## remove what was built; downloads stay in their caches
	rm -rf bin .venv .cache .testbed

# The menu: `make` lists it. The work itself is in scripts/ and in the `tashika` binary, which can be called directly as well.

.DEFAULT_GOAL := help
.PHONY: help run test test-all fuzz lint fmt bench sim nightly doc clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Start the server on SQLite (tashika.db here), debug build
	cargo run --bin tashika -- serve

test: ## Every test that needs no PostgreSQL: the everyday loop
	scripts/test --sqlite

test-all: ## Every test, on SQLite and on a throwaway PostgreSQL
	scripts/test

fuzz: ## Every parser of webhook headers against a fuzzer, 30 seconds each
	scripts/fuzz

lint: ## Formatting, clippy with warnings denied, dependency rules
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo deny --offline check bans licenses sources

fmt: ## Format the code
	cargo fmt --all

bench: ## Our figures beside the database's own limits
	cargo run --release --bin tashika -- bench

sim: ## One deterministic simulated run; the same seed gives the same trace
	cargo run --profile quick --bin tashika -- sim --seed 1 --steps 2000

nightly: ## What takes too long for every change: 10,000 simulated runs over every world
	scripts/nightly

doc: ## API documentation of the workspace
	cargo doc --workspace --no-deps

clean: ## Remove everything that was built
	cargo clean

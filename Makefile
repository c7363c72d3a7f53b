# make up      three PostgreSQL servers behind one address (ARGS="--replicas 2 --port 7000" for something else)
#              (ARGS="--nodes 3": three nodes, so that the loss of one is no outage; installs Go and builds etcd first)
# make demo    twenty seconds on servers made for it: load, the loss of a server, and what came of it
# make test    everything that must hold before a change is committed
# make check   the part of it that runs no test
# make bench   TPC-W and TPC-C at 1, 2 and 4 replicas beside PostgreSQL and its rivals, in 10 to 14 minutes (needs root)
# make bench-full   TPC-W, TPC-C, RUBiS, RUBBoS, up to 8 replicas, and the loss of one; about an hour
# make bench-proxy  the proxy's cost, beside a direct connection and PgBouncer
# make sim     10,000 seeds of the simulator, and each rule switched off in turn
# make chaos   ten minutes on real servers while everything fails that can (ARGS="--seconds 60 --seed 7")
# make differential  2,000 random schemas: what all replicas have after random transactions, beside one PostgreSQL
# make soundness  100,000 pairs of statements on a real server, whether what is concluded about them holds
# make fuzz    the lexer and the cache of statements against PostgreSQL's parser, for about half an hour

CARGO_HOME ?= $(HOME)/.cargo
export PATH := $(CARGO_HOME)/bin:$(PATH)
ARGS ?=

.PHONY: up demo test check bench bench-full bench-proxy sim chaos differential fuzz soundness etcd setup setup-servers setup-test

# Two builds, because one of both packages would build onecopy with other features than `make up` does.
quick_build = cargo build --profile quick --package

up: setup $(if $(findstring --nodes,$(ARGS)),$(if $(findstring --etcd-bin,$(ARGS)),,etcd))
	@$(quick_build) onecopy
	@$${CARGO_TARGET_DIR:-target}/quick/onecopy up $(ARGS)

demo: setup-servers
	@$(quick_build) onecopy
	@$(quick_build) bench
	@$${CARGO_TARGET_DIR:-target}/quick/onecopy demo $(ARGS)

test: setup-test check
	cargo xtask test

check: setup
	cargo xtask tidy
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets -- -D warnings
	@if command -v cargo-deny >/dev/null && [ -f deny.toml ]; then cargo deny check; fi

bench: setup-test
	cargo xtask bench run crates/bench/plans/quick.toml $(ARGS)

bench-full: setup-test
	cargo xtask bench run crates/bench/plans/full.toml $(ARGS)

bench-proxy: setup-test
	cargo xtask bench proxy $(ARGS)

fuzz: setup
	ONECOPY_FUZZ=100 cargo test --package sql --test fuzz

sim: setup
	cargo xtask sim --seeds 10000 $(ARGS)
	cargo xtask sim --protocol c-jdbc --seeds 10000
	cargo xtask sim --nodes --seeds 10000
	cargo xtask sim --nodes --protocol middle-r --seeds 10000
	cargo xtask sim --mutants --seeds 12000
	cargo xtask sim --nodes --mutants
	cargo xtask sim --nodes --protocol middle-r --mutants

chaos: setup-test
	cargo xtask chaos $(if $(ARGS),$(ARGS),--seconds 600)

differential: setup-test
	cargo xtask differential --schemas 2000 $(ARGS)

soundness: setup-test
	cargo xtask soundness --pairs 100000 $(ARGS)

setup:
	@scripts/setup build

setup-servers:
	@scripts/setup test

etcd:
	@scripts/etcd

setup-test: setup-servers
	@scripts/drivers
	@scripts/etcd

# The two commands: `make demo` and `make test`. Both do their own set-up in .venv and build/.
PYTHON ?= python3
# By its path, for below the tools of .venv come first on PATH: nothing that .venv brings is taken
# from the machine.
override PYTHON := $(or $(shell command -v $(PYTHON) 2>/dev/null),$(PYTHON))
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
DEMO ?= build/demo
PYTEST_ARGS ?=
PYTEST_WORKERS ?= 2
BENCH_ARGS ?=
INSTALL := pip install --quiet --no-compile # Python compiles a module when it is first imported

C_FILES := $(wildcard headwater/include/*.h headwater/src/*/*.[ch])
HEADWATER := $(C_FILES) $(wildcard headwater/python/headwater/*) headwater/pyproject.toml \
             $(wildcard headwater/python/headwater/*/*.py headwater/python/headwater/*/*/*.py) \
             $(wildcard headwater/meson.build headwater/meson.options headwater/LICENSE)
CONFLUENCE := $(wildcard confluence/confluence/* confluence/confluence/*/*) $(wildcard confluence/src/*.[ch]) \
              confluence/pyproject.toml confluence/meson.build confluence/meson.options confluence/LICENSE

.NOTPARALLEL: # one set-up at a time
.PHONY: demo test test-c test-rust test-burn test-extras test-bare release-check lint warnings sanitize bench \
        bench-instructions suite fuzz docs system-demo system-c system-test clean

demo: system-demo $(VENV)/installed
	mkdir -p $(DEMO)
	test -f $(DEMO)/shop.sqlite || $(BIN)/python -m headwater.shop $(DEMO)/shop.sqlite
	$(BIN)/confluence run sqlite:///$(DEMO)/shop.sqlite --metadata examples/shop/shop.json \
	    --task churn --out $(DEMO)/run --preset demo --overwrite
	$(BIN)/headwater sample $(DEMO)/run/store --task churn --split test

test: system-test test-c test-rust $(VENV)/test-tools
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist loadfile $(PYTEST_ARGS)

# Trackers bring eighty packages, some older than those of .venv: they stand before these in a folder
# of their own, and a test that is skipped for want of one is an error.
test-extras: $(VENV)/extras/installed $(VENV)/test-tools
	mkdir -p build
	$(VENV)/extras/bin/python -m pytest -rs confluence/tests/watch/test_trackers.py \
	    confluence/tests/watch/test_telemetry.py > build/test-extras.log; \
	    status=$$?; cat build/test-extras.log; exit $$status
	! grep -q SKIPPED build/test-extras.log

# Both commands on machines that have nothing but `make` and `python3`; see CONTRIBUTING.md. FULL=1
# runs all of `make test` there, otherwise some minutes of it.
SUITES ?= trixie
test-bare:
	sh tools/test_bare.sh $(if $(FULL),full,part) $(SUITES)

# Tests that take too long for every change, before a release.
release-check: lint
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist loadfile -m release
	README_AS_IT_IS=1 $(BIN)/python -m pytest confluence/tests/test_readme.py
	sh tools/test_rust.sh $(BIN)/python asan
	sh tools/test_rust.sh $(BIN)/python package
	sh tools/test_burn.sh $(BIN)/python release
	sh tools/test_burn.sh $(BIN)/python collective
	$(MAKE) test-bare SUITES=bookworm
	$(MAKE) test-bare SUITES=testing FULL=1

# The pages of docs/ as a site; a broken link, or a page that mkdocs.yml does not list, is an error.
docs: $(VENV)/docs-tools
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# ---- set-up --------------------------------------------------------------------------------

# System packages, of which each command asks only for those that it needs (tools/system-packages.sh).
system-demo:
	@PYTHON='$(PYTHON)' sh tools/system-packages.sh demo

system-c:
	@PYTHON='$(PYTHON)' sh tools/system-packages.sh c

system-test:
	@PYTHON='$(PYTHON)' sh tools/system-packages.sh test

# A command adds to .venv what it needs and is not there yet. All need the two packages, with what
# builds them and what they run on; `test` and `lint` add their tools.
$(VENV)/build-tools: tools/requirements-build.txt | system-demo
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m $(INSTALL) --upgrade pip
	$(BIN)/python -m $(INSTALL) -r tools/requirements-build.txt
	touch $@

$(VENV)/installed: $(VENV)/build-tools $(HEADWATER) $(CONFLUENCE)
	$(BIN)/python -m $(INSTALL) --no-build-isolation ./headwater ./confluence
	touch $@

$(VENV)/test-tools $(VENV)/lint-tools $(VENV)/docs-tools: $(VENV)/%-tools: tools/requirements-%.txt | $(VENV)/build-tools
	$(BIN)/python -m $(INSTALL) -r $<
	touch $@

$(VENV)/extras/installed: tools/requirements-extras.txt $(VENV)/installed
	test -d $(VENV)/extras || $(BIN)/python -m venv $(VENV)/extras
	$(BIN)/python -c "import site; print(site.getsitepackages()[0])" > \
	    "$$($(VENV)/extras/bin/python -c 'import site; print(site.getsitepackages()[0])')/beside.pth"
	$(VENV)/extras/bin/python -m $(INSTALL) -r tools/requirements-extras.txt
	touch $@

# ---- C -------------------------------------------------------------------------------------

C_TESTS := -Dtests=true -Dpython=false --buildtype=debugoptimized

build/c/build.ninja: | system-c $(VENV)/build-tools
	meson setup build/c headwater $(C_TESTS)

build/c-confluence/build.ninja: | system-c $(VENV)/build-tools
	meson setup build/c-confluence confluence $(C_TESTS)

test-c: system-c $(VENV)/installed build/c/build.ninja build/c-confluence/build.ninja
	meson test -C build/c --print-errorlogs
	meson test -C build/c-confluence --print-errorlogs

# The crates of bindings/rust, where cargo is.
test-rust: $(VENV)/installed
	sh tools/test_rust.sh $(BIN)/python

# The crate of bindings/rust for Burn, where cargo is and crates can be fetched.
test-burn: $(VENV)/installed
	sh tools/test_burn.sh $(BIN)/python

# The driver that is counted, optimised as in the wheel, with debug information for callgrind.
build/driver/bench/bench_sampler: $(C_FILES) headwater/bench/bench_sampler.c | $(VENV)/build-tools
	test -d build/driver || meson setup build/driver headwater -Dbench=true -Dpython=false \
	    --buildtype=release -Ddebug=true
	meson compile -C build/driver

sanitize: system-c $(VENV)/installed $(VENV)/test-tools
	sh tools/compile.sh build/asan headwater $(C_TESTS) -Db_sanitize=address,undefined -Db_lundef=false
	sh tools/compile.sh build/asan-confluence confluence $(C_TESTS) -Db_sanitize=address,undefined \
	    -Db_lundef=false
	sh tools/compile.sh build/tsan headwater $(C_TESTS) -Db_sanitize=thread -Db_lundef=false
	sh tools/compile.sh build/tsan-confluence confluence $(C_TESTS) -Db_sanitize=thread -Db_lundef=false
	meson test -C build/asan --print-errorlogs --timeout-multiplier 5
	meson test -C build/asan-confluence --print-errorlogs --timeout-multiplier 5
	sh headwater/tests/sanitized.sh build/asan
	meson test -C build/tsan --suite threads --print-errorlogs --timeout-multiplier 10
	meson test -C build/tsan-confluence --suite threads --print-errorlogs --timeout-multiplier 10

# ---- checks and measurements ---------------------------------------------------------------

lint: $(VENV)/installed $(VENV)/test-tools $(VENV)/lint-tools warnings
	$(BIN)/clang-format --dry-run --Werror headwater/include/*.h headwater/src/*/*.[ch] \
	    headwater/tests/c/*.[ch] headwater/tests/c/*/*.[ch] headwater/fuzz/*.c headwater/bench/*.c \
	    examples/c/*.c confluence/src/*.[ch] confluence/tests/c/*.c
	$(BIN)/clang-tidy --quiet headwater/src/*/*.c -- -std=c17 -Iheadwater/include -Iheadwater/src
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --config-file headwater/pyproject.toml headwater/python/headwater
	$(BIN)/mypy --config-file confluence/pyproject.toml confluence/confluence

# All C of both packages, with each of these compilers that is here.
COMPILERS ?= gcc clang
warnings: system-c $(VENV)/installed
	for compiler in $(COMPILERS); do \
	    command -v $$compiler >/dev/null || { echo "$$compiler: not here"; continue; }; \
	    for package in headwater confluence; do \
	        CC=$$compiler sh tools/compile.sh build/warnings-$$compiler-$$package $$package \
	            -Dtests=true --buildtype=debugoptimized || exit 1; \
	    done; \
	done

# Some minutes: batches, on stores of this size (docs/notebook/performance.md), and the building of
# numeric tables (docs/guides/embedders-and-builds.md).
BENCH_ROWS ?= 5000000
BENCH_HUB ?= 1000000
bench: $(VENV)/installed
	$(BIN)/python headwater/bench/figures.py --rows $(BENCH_ROWS) --hub $(BENCH_HUB) \
	    --folder build/stores --out build/bench.jsonl $(BENCH_ARGS)
	$(BIN)/python headwater/bench/build.py --repeat 3 > build/bench-build.jsonl
	$(BIN)/python headwater/bench/build.py --repeat 3 --in-order >> build/bench-build.jsonl
	cat build/bench-build.jsonl

# One fit of each of sixteen questions that nobody tuned for, in about an hour (suite/README.md). It
# continues with the questions that SUITE_OUT does not have. QUICK=1 takes a tenth of the steps.
SUITE_DATA ?= ../shared/data
SUITE_OUT ?= build/suite/$(if $(QUICK),quick,answers).jsonl
SUITE_ARGS ?=
suite: $(VENV)/installed
	$(BIN)/python suite/ask_suite.py --data $(SUITE_DATA) --out $(SUITE_OUT) $(if $(QUICK),--quick) \
	    $(SUITE_ARGS)

# Needs valgrind. The lines are kept, so that a later commit can be compared.
bench-instructions: $(VENV)/installed build/driver/bench/bench_sampler
	mkdir -p build/stores
	$(BIN)/python headwater/bench/generate.py build/stores/small.hw --rows 1000000
	$(BIN)/python headwater/bench/generate.py build/stores/text.hw --rows 1000000 --text-share 0.2
	$(BIN)/python headwater/bench/instructions.py build/driver/bench/bench_sampler \
	    build/stores/small.hw build/stores/text.hw --layout dense --layout compact \
	    --record headwater/bench/results/instructions.jsonl

# Coverage-guided, with clang's libFuzzer; `make test-c` replays a fixed number of cases instead.
FUZZ_SECONDS ?= 120
fuzz:
	sh headwater/fuzz/run.sh fuzz_open -max_total_time=$(FUZZ_SECONDS)
	sh headwater/fuzz/run.sh fuzz_sample -max_total_time=$(FUZZ_SECONDS)

clean:
	rm -rf build $(VENV)

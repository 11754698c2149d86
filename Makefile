# Thin names over CMake's presets and the Python packages. Each target installs what it lacks (scripts/packages.txt),
# builds, and runs. `make help` prints the first sentence of the comment above each.

PYTHON  := /usr/bin/python3
PREFIX  ?= /usr/local
LAYER   ?= channel
STACK   ?=
SEED    ?=
COUNT   ?=
RANKS   ?=
STEP    ?=
SUITE   ?=
FUZZ_SECONDS ?= 60
SOAK_MINUTES ?= 60
# Whole jobs at a time: half of a job's time is waiting.
AT_A_TIME ?= $(shell expr $$(nproc) '*' 3 / 2)

.DEFAULT_GOAL := build
.PHONY: help deps build demo test test-rest test-slurm test-kubernetes test-containers test-paths adversary soak mutants conformance torture bench bench-quick bench-instructions bench-nanoseconds bench-handshake bench-one-node study deps-study docs proofs lint lint-changed format unit-debug unit-asan fuzz fuzz-coverage fuzz-seeds faults asan tsan install mpis package test-packages

# Lists the targets, each with what it does.
help:
	@awk '/^#/ { text = text substr($$0, 2); next } \
		/^[a-z][a-z -]*:/ && text { names = $$0; sub(/:.*/, "", names); sub(/^ /, "", text); sub(/[.]( .*|$$)/, "", text); \
			printf "make %-26s %s\n", names, text } { text = "" }' Makefile

# Debian packages, each with its reason in scripts/packages.txt.
deps:
	@scripts/install-packages build test model bench lint

# The product, in build/release: what `make` alone does.
build:
	@scripts/install-packages build
	@cmake --preset release --log-level=WARNING
	@cmake --build --preset release --target product

# PyPI's MPIs, in build/mpis, which tests and benchmarks run beside Debian's.
mpis:
	@scripts/install-packages build test
	@scripts/install-mpis

# Programs plain and sealed on two nodes, while somebody captures the wire and looks for what they send.
demo: build
	@scripts/install-packages test
	@$(PYTHON) -m cryptmpi_tools.demo $(ARGS)

# Unit tests and the socket suite, then whole jobs between two nodes (root, for network namespaces). AT_A_TIME of them
# run at once, each in nodes of its own. A whole job that fails on a busy machine (an MPI that does not exit, a launcher
# that gives up) is run again, and shown as rerun.
test: build build/python
	@scripts/install-packages build test model study
	@scripts/install-mpis || echo "make test: not all of PyPI's MPIs could be installed; the tests of those are skipped"
	@cmake --build --preset release
	@ctest --preset release --parallel $(AT_A_TIME)
	@build/python/bin/python -m pytest -q tests/packages/test_install.py
	@build/python/bin/python -m pytest tests/bench tests/model tests/scripts tests/study tests/tune tests/interop tests/system \
		--ignore tests/system/test_faults.py -m "not other_mpi and not long" \
		--numprocesses $(AT_A_TIME) --dist worksteal --reruns 2 --rerun-except Leak -rsR $(ARGS)

# What `make test` leaves out: the cases on all MPIs but one of each ABI and door, and those that take long
# (tests/system/conftest.py).
test-rest: build build/python
	@scripts/install-packages build test
	@scripts/install-mpis || echo "make test-rest: not all of PyPI's MPIs could be installed; the tests of those are skipped"
	@cmake --build --preset release
	@build/python/bin/python -m pytest tests/system --ignore tests/system/test_faults.py -m "other_mpi or long" \
		--numprocesses $(AT_A_TIME) --dist loadgroup --reruns 2 --rerun-except Leak -rsR $(ARGS)

# Jobs under srun and in batch jobs, on a Slurm of two nodes that the tests start and end (docs/slurm.md).
test-slurm: build build/python
	@scripts/install-packages build test slurm
	@build/python/bin/python -m pytest tests/slurm --reruns 2 --rerun-except Leak -rsR $(ARGS)

# The job of containers/mpijob.yaml as the MPI Operator starts it, on nodes that stand for its pods
# (docs/kubernetes.md).
test-kubernetes: build build/python
	@scripts/install-packages build test kubernetes
	@build/python/bin/python -m pytest tests/kubernetes $(ARGS)

# The image of containers/Containerfile, built and run by Podman as docs/containers.md says (root; DEBIAN_MIRROR as
# below).
test-containers: build/python
	@scripts/install-packages test containers
	@build/python/bin/python -m pytest tests/containers $(ARGS)

# A newcomer's five ways to a first sealed job, by the lines of docs/index.md, and how long each line takes.
test-paths: build build/python
	@scripts/install-packages build test slurm kubernetes containers
	@build/python/bin/python -m pytest tests/paths -s $(ARGS)

# An active adversary on the wire of whole jobs, attack after attack (docs/security.md). Each attack on each operation,
# every second sample in a quarter of an hour (ARGS=--all: all of them; --full: every byte position, days; --resume goes
# on). Results: build/adversary/report.json.
adversary: build mpis
	@$(PYTHON) -m cryptmpi_tools.adversary $(ARGS)

# Eight ranks under each layer for SOAK_MINUTES each, killed, stopped and cut off (docs/security.md). Results:
# build/soak/report.json.
soak: build mpis
	@$(PYTHON) -m cryptmpi_tools.soak --minutes $(SOAK_MINUTES) $(ARGS)

# Each promise is broken once, in a copy of the sources, and the test that has to see it is run; none may survive.
mutants: build/python
	@scripts/install-packages build test
	@$(PYTHON) tests/mutants $(ARGS)

# Each call of MPI and of the crypto module fails once, in a job of its own: some minutes, with FAULTS=all hours.
faults: build build/python mpis
	@cmake --build --preset release
	@build/python/bin/python -m pytest tests/system/test_faults.py $(ARGS)

# An independent implementation of the handshake's protocol, from PyPI.
build/python: tests/interop/requirements.txt
	@scripts/install-packages test
	@$(PYTHON) -m venv --system-site-packages --clear $@
	@$@/bin/pip install --quiet -r $<
	@touch $@

# Suites of others, plain against sealed (LAYER=, STACK=, SUITE=; docs/conformance.md).
conformance: build
	@scripts/install-packages test conformance
	@scripts/install-mpis --mpi4py
	@$(PYTHON) -m cryptmpi_tools.conformance --layer $(LAYER) $(if $(STACK),--stack $(STACK)) $(if $(SUITE),--suite $(SUITE)) $(ARGS)

# Random MPI programs, plain and sealed, compared (SEED=, COUNT=, STACK=, RANKS=, STEP=; CONTRIBUTING.md).
torture: build mpis
	@$(PYTHON) -m cryptmpi_tools.torture $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT)) $(if $(STACK),--stack $(STACK)) \
		$(if $(RANKS),--ranks $(RANKS)) $(if $(STEP),--step $(STEP)) $(ARGS)

# What sealing costs, against the targets, and what messages inside a node cost (docs/performance.md). Bench-quick: in
# under ten minutes; bench: all of it, which takes hours (ARGS=--resume goes on where it was stopped). One thing by
# itself measures `cryptmpi bench`, which is a part of the study.
bench-quick bench: build mpis
	@scripts/install-packages model bench
	@cmake --build --preset release --target cryptmpi-bench-cipher
	@$(PYTHON) -m cryptmpi_tools.bench $(if $(filter bench,$@),--full) $(if $(STACK),--stack $(STACK)) $(ARGS); measured=$$?; \
		$(if $(ARGS)$(STACK),:,$(PYTHON) -m cryptmpi_tools.bench.one_node --turns 6) && exit $$measured

# Instructions of ours for a small message, which a busy machine does not change; fails where they grew by more than 2
# %.
bench-instructions: build
	@scripts/install-packages test bench
	@$(PYTHON) -m cryptmpi_tools.bench.instructions $(ARGS)

# Where the nanoseconds of a small message go.
bench-nanoseconds: build mpis
	@cmake --build --preset release --target cryptmpi-bench-message
	@$(PYTHON) -m cryptmpi_tools.bench.nanoseconds $(ARGS)

# What a handshake and the agreement of ranks cost, with and without ML-KEM and members (docs/keys.md).
bench-handshake: build
	@cmake --build --preset release --target cryptmpi-bench-handshake
	@build/release/bin/cryptmpi-bench-handshake build/release/lib/cryptmpi $(or $(ARGS),2 4 8 16 32 64)

# What a message between ranks of one node costs, native, sealed, and authenticated without sealing.
bench-one-node: build mpis
	@$(PYTHON) -m cryptmpi_tools.bench.one_node $(ARGS)

# What `make study` needs. With these, `build/release/bin/cryptmpi study --quick` runs, too; without PyPI's Open MPI it
# takes Debian's.
deps-study:
	@scripts/install-packages build test bench study

# The papers' figures beside ours, on one page in build/study (docs/study.md). ARGS=--full: hours, and --resume goes on
# where it was stopped.
study: build deps-study
	@scripts/install-mpis || echo "make study: not all of PyPI's MPIs could be installed; those are not measured"
	@$(PYTHON) -m cryptmpi_tools.study $(ARGS)

# These pages as a site, build/site/html/index.html, built strictly: a link to nowhere is an error.
docs: build build/docs-venv
	@scripts/make-docs build/release/bin/cryptmpi build/site
	@NO_MKDOCS_2_WARNING=1 build/docs-venv/bin/mkdocs build --strict --quiet --config-file build/site/mkdocs.yml
	@echo "docs: build/site/html/index.html"

build/docs-venv: docs/requirements.txt
	@scripts/install-packages docs
	@$(PYTHON) -m venv --clear $@
	@$@/bin/pip install --quiet --requirement $<
	@touch $@

VERIFPAL = $(CURDIR)/build/verifpal/bin/verifpal
# The protocol's symbolic models, in Verifpal, which cargo builds (Rust 1.95 or newer; docs/proofs.md).
proofs: $(VERIFPAL)
	@scripts/check-proofs $<

$(VERIFPAL):
	@cargo --version 2>/dev/null | grep -Eq '^cargo 1\.(9[5-9]|[1-9][0-9]{2})' || \
		{ echo "make proofs: there is no cargo of Rust 1.95 or newer, which builds Verifpal: see https://rustup.rs"; exit 1; }
	@cargo install --quiet --ignore-rust-version --root build/verifpal --version 1.6.7 verifpal

# The forms of all files, and clang-tidy of the library.
lint: build
	@scripts/install-packages lint
	@scripts/lint

SINCE ?= HEAD~1
# The same with clang-tidy, which takes long, only of the files that differ from the commit SINCE.
lint-changed: build
	@scripts/install-packages lint
	@scripts/lint --since $(SINCE)

# Lays the C and C++ files out as clang-format wants them.
format:
	@scripts/install-packages lint
	@clang-format-14 -i $$(git ls-files -co --exclude-standard '*.c' '*.cpp' '*.h' '*.hpp')

# The unit tests of a debug build, which notes every nonce and dies of one that comes twice; and with ASan and UBSan.
unit-debug unit-asan:
	@scripts/install-packages build test
	@cmake --preset $(@:unit-%=%) --log-level=WARNING
	@cmake --build --preset $(@:unit-%=%) --target unit_tests
	@ctest --preset $(@:unit-%=%) --label-regex unit --parallel 2

# Each fuzzer for FUZZ_SECONDS, from its kept corpus.
fuzz:
	@scripts/install-packages build test fuzz
	@cmake --preset fuzz -DCRYPTMPI_FUZZ_SECONDS=$(FUZZ_SECONDS) --log-level=WARNING
	@cmake --build --preset fuzz --target fuzzers
	@ctest --preset fuzz --parallel 2

# Which lines of the sources the fuzzers reach: a table.
fuzz-coverage:
	@scripts/install-packages build test fuzz
	@scripts/fuzz-coverage

# Records the corpus' seeds that are conversations again, where the protocol changed.
fuzz-seeds:
	@scripts/install-packages build test fuzz
	@cmake --preset fuzz --log-level=WARNING
	@cmake --build --preset fuzz --target fuzz_seeds
	@build/fuzz/bin/fuzz_seeds tests/fuzz/corpus

MPI_TESTS = tests/system/test_mpi_layer.py tests/system/test_procedures.py
asan: ONLY = (test_messages or large_messages or threads or all_of_one_node or many_leaders or every_sealed_procedure and not fortran) \
             and (openmpi-4.1.4 or mpich-5.0.2-ofi) and not wide_node or attack or hostile
tsan: ONLY = threads and openmpi-4.1.4 and not wide_node
# The unit tests, the socket suite and jobs under the MPI layer, with sanitizers. Every case of the socket suite is
# sealed by a library built with the sanitizer; the jobs are messages of every kind and size, attacks on them, and every
# sealed procedure, of an MPI of each ABI. (TSan: several threads, and Open MPI only: PyPI's MPICH 5.0.2 crashes in its
# threads as soon as TSan's runtime is preloaded, plain, too.)
asan tsan: build/python
	@scripts/install-packages build test
	@scripts/install-mpis || echo "make $@: not all of PyPI's MPIs could be installed; the tests of those are skipped"
	@cmake --preset $@ --log-level=WARNING
	@cmake --build --preset $@
	@ctest --preset $@
	@TEST_BUILD=build/$@ ASAN_OPTIONS=detect_leaks=0 build/python/bin/python -m pytest -q tests/system/test_sockets.py
	@TEST_BUILD=build/$@ build/python/bin/python -m pytest -q -rs $(MPI_TESTS) -k "$(ONLY)"

# Installs the product below PREFIX. Installs no packages: what is built from must be there, and crypto modules whose
# libraries are not are left out, with a line each. Stripped; DESTDIR is the root of a package's own tree.
install:
	@cmake --preset release -DCRYPTMPI_TESTS=OFF --log-level=NOTICE
	@cmake --build --preset release --target product
	@cmake --install build/release --prefix $(PREFIX) --strip >build/install.log || { cat build/install.log; exit 1; }

# A Debian package, a wheel and an RPM into build/packages, and what is inside of others' work (docs/installing.md).
package:
	@scripts/install-packages build packages
	@packaging/build-deb build/packages
	@packaging/build-wheel build/packages
	@packaging/build-rpm build/packages

# A sealed job from each package, installed into a bare root or a fresh environment, between two nodes (root, for
# namespaces; DEBIAN_MIRROR: where bare roots come from).
test-packages: build/python package
	@scripts/install-packages test packages
	@build/python/bin/python -m pytest tests/packages $(ARGS)

# The front door: every target installs what is missing, builds what it needs, and runs.

.DEFAULT_GOAL := help
.PHONY: help bootstrap quickstart test sim bench fault-matrix chaos-long compare compare-env gpu-pack gpu-check package fmt tidy clean
JOBS ?= $(shell nproc)

help:  ## show this
	@echo "Swarmline: train one large model on many unreliable machines."
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'
	@echo
	@echo "JOBS=$(JOBS) compilers and tests at a time."

bootstrap:  ## install what is missing (apt-get; libtorch under .deps/)
	@scripts/bootstrap

quickstart: bootstrap  ## train a small model on a swarm of eight local processes, in minutes
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS) --target swarmline
	build/release/swarmline launch configs/quickstart.toml --fresh

# Two builds, one list of results: AddressSanitizer + UBSan with the fuzzers for all that needs no
# libtorch, and what needs it in the ci build. Each test is built and run once.
test:  ## build and run all tests of the label "fast"
	@scripts/bootstrap --tests
	cmake --preset ci -DSWARMLINE_TORCH_FREE_TESTS=OFF -DSWARMLINE_UNITY=ON
	cmake --build --preset ci --parallel $(JOBS)
	cmake --preset asan
	cmake --build --preset asan --parallel $(JOBS)
	@mkdir -p build/test
	@printf 'subdirs("%s" "%s")\n' '$(CURDIR)/build/ci' '$(CURDIR)/build/asan' >build/test/CTestTestfile.cmake
	ctest --test-dir build/test --label-regex '^fast$$' --parallel $$((2 * $(JOBS))) --output-on-failure

SEEDS ?= 1000
FIRST ?= 1
sim: bootstrap  ## SEEDS=1000 swarms with random faults, in virtual time; FIRST=1 is the first seed
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS) --target swarm_seeds
	build/release/tests/sim/swarm_seeds --first $(FIRST) --count $(SEEDS) --jobs $(JOBS) \
	  --regressions tests/sim/regression_seeds.txt

CELLS ?= all
fault-matrix: bootstrap  ## CELLS="kill/reduce/*": faults in every phase of runs of real processes, as tests/README.md shows
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS) --target swarmline
	python3 tests/chaos/fault_matrix.py --program build/release/swarmline --jobs $(JOBS) --cells $(CELLS)

chaos-long: bootstrap  ## 62 faults in 30 minutes over 16 real peers, emulated
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS) --target swarmline
	python3 tests/chaos/many_faults.py --program build/release/swarmline

bench: bootstrap  ## build and run the benchmarks, briefly: build/bench/results.{md,json}
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS) --target swarmline benchmarks
	python3 bench/run_all.py --build build/release

compare: bootstrap compare-env  ## bitsandbytes' and hivemind's codecs beside ours, in one run
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS) --target swarmline
	.deps/compare/bin/python scripts/compare/codec_compare.py --swarmline build/release/swarmline

compare-env:  ## install what the benchmarks are compared with (PyTorch and others) into .deps/compare
	@scripts/compare-env $(ARGS)

gpu-pack: bootstrap  ## pack what a bare machine with a GPU needs for gpu-check: build/gpu-pack.tar.xz; ARGS="--architecture 90": for such cards alone
	@JOBS=$(JOBS) scripts/gpu-pack $(ARGS)

gpu-check:  ## run all that needs a GPU, from build/gpu-pack.tar.xz; prints one table
	@python3 scripts/gpu-check $(ARGS)

package:  ## make the wheel, the tarball and the container image: build/package; ARGS="wheel check" picks
	@JOBS=$(JOBS) scripts/package $(ARGS)

fmt:  ## format the sources
	@python3 tests/tidy/format.py --fix .

tidy:  ## clang-tidy over all sources (slow), then the lint and format tests
	@scripts/bootstrap --tests
	cmake --preset dev
	cmake --build --preset dev --parallel $(JOBS) --target all header_checks
	run-clang-tidy-19 -quiet -j $(JOBS) -p build/dev '$(CURDIR)/(base|kernels|compression|engine|balancer|pipeline|sim|console|node|tools|cli)/.*\.cc$$'
	python3 tests/tidy/lint.py .
	python3 tests/tidy/format.py .

clean:  ## remove what was built (downloads stay in .deps/)
	rm -rf build

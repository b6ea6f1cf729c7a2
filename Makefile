# The commands of the house. The build itself is CMake's; docs/dependencies.md lists what it needs.
.POSIX:
.SUFFIXES:
JOBS = $$(nproc 2>/dev/null || echo 2)
FUZZ_SECONDS = 600
RELEASE = build/release

.PHONY: build demo test check check-slow fuzz bench format clean help

build:            ## build/espalier, optimised
	@tools/bootstrap build
	@mkdir -p build && tools/configure release $(RELEASE) >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@ninja -C $(RELEASE) -j $(JOBS) espalier
	@ln -sfn release/src/cli/espalier build/espalier

demo: build       ## installs, builds, and answers with the demo model: a call of a tool, and the speed (MODEL=PATH: a question to yours)
	@if [ -n "$${MODEL:-}" ]; then build/espalier run "$$MODEL" "What is the capital of France?" --stats; else \
	build/espalier run models/demo "I am looking for an Italian restaurant in Berkeley, please." \
	  --tools models/demo/example-tools.json --temperature 0 --stats; fi

test: build       ## the fast tests
	@ninja -C $(RELEASE) -j $(JOBS)
	@ctest --test-dir $(RELEASE) -LE "slow|medium" -j $(JOBS) --output-on-failure

check:            ## what CI runs: clean builds with clang and gcc, fast tests, fuzzing, aarch64
	@tools/bootstrap check
	@tools/check

check-slow: build ## the slow tests, and the fast ones under sanitizers
	@tools/bootstrap check
	@tools/check-slow

fuzz:             ## each fuzz target for FUZZ_SECONDS
	@tools/bootstrap check
	@tools/fuzz build/fuzz $(FUZZ_SECONDS)

bench: build      ## times of MODEL (a folder or .gguf file; without it a random one of LFM2.5-2.6B's shape)
	@model=$${MODEL:-.cache/models/random-lfm2.5-2.6b}; \
	[ -e "$$model" ] || tools/make-random-checkpoint lfm2.5-2.6b "$$model"; \
	build/espalier bench "$$model"

format:           ## clang-format over the sources
	@git ls-files '*.cc' '*.h' | xargs $$(command -v clang-format-19 || command -v clang-format) -i

clean:            ## removes build/ (fetched models stay in .cache/)
	@rm -rf build

help:             ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile

# `make run` and `make test` install everything on a machine with Python 3.11+ and make.

UV := $(shell command -v uv || echo .uv/bin/uv)
# Without npm there are no node packages, and the tests of the node clients are skipped.
NODE_PACKAGES := $(if $(shell command -v npm),simulator/tests/clients/node_modules/.package-lock.json)
SIMULATOR_SYNC = UV_PROJECT_ENVIRONMENT=simulator/.venv $(UV) sync --package chatrig --python python3 --locked --all-extras --no-editable --quiet
WARM := .parley/tiktoken/fb374d419588a4632f3f557e76b4b70aebbca790

# Keep compiled modules whatever the environment says, so that processes start faster.
export PYTHONDONTWRITEBYTECODE =

.PHONY: run tour help page-fonts test test-long test-simulator lint format docs bench bench-deltas bench-estimates bench-load bench-planner bench-prompts bench-replies bench-schedules bench-schemas bench-sessions bench-start bench-turns soak chaos mutants words docs-pictures init check warm clean distclean

# Without a model key, the simulator begins with the tour.
run: .venv/ready $(WARM)  ## Run the bot; without tokens, start the simulator. AGENT=DIR runs your own agent.
	@.venv/bin/python -m bot run

tour: .venv/ready $(WARM)  ## Start the simulator with the scripted tour, although there is a key or an agent.
	@.venv/bin/python -m bot simulator --tour

help:  ## List the targets.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14

test: .venv/ready $(WARM)  ## Run the tests but for the long ones, then the simulator's. With ARGS: pytest with them.
	.venv/bin/pytest -n auto --dist worksteal $(if $(ARGS),$(ARGS),-m "not long")
	$(if $(ARGS),,@$(MAKE) --no-print-directory test-simulator)

test-long: .venv/ready $(WARM)  ## Run the long tests: processes, crashes, deployments, the page in a browser.
	.venv/bin/pytest -n auto --dist worksteal -m long

# The environment has the simulator's wheel and the libraries of its tests, and nothing of Parley.
test-simulator: simulator/.venv/ready $(NODE_PACKAGES)  ## Run the simulator's tests; ARGS go to pytest.
	@$(SIMULATOR_SYNC) --reinstall-package chatrig
	cd simulator && .venv/bin/pytest -n auto --dist worksteal $(ARGS)

lint: .venv/ready simulator/.venv/ready  ## Check style and types.
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	cd simulator && .venv/bin/mypy

format: .venv/ready  ## Format the code.
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

# Some minutes. The long versions and their results: docs/benchmarks.md.
bench:  ## Run a short version of each benchmark.
	@$(MAKE) --no-print-directory bench-replies BENCH_REPLIES=1 BENCH_CONTENDER=parley
	@echo "That was 1 reply. Full run: make bench-replies, more than an hour."
	@$(MAKE) --no-print-directory bench-turns BENCH_DATABASE=sqlite
	@echo "That was SQLite. Full run: make bench-turns, some minutes."
	@$(MAKE) --no-print-directory bench-sessions LENGTHS=100
	@echo "That was a short history. Full run: make bench-sessions, some minutes."
	@$(MAKE) --no-print-directory bench-start BENCH_RUNS=1 BENCH_PLATFORM=slack
	@echo "That was 1 start of each program on Slack. Full run: make bench-start, 20 minutes."
	@$(MAKE) --no-print-directory bench-deltas STREAMS=20
	@echo "That was 20 streams. Full run: make bench-deltas, 200 of them."
	@$(MAKE) --no-print-directory bench-estimates
	@$(MAKE) --no-print-directory bench-planner SIZE=20000
	@echo "That was a short text. Full run: make bench-planner, 100,000 characters."
	@$(MAKE) --no-print-directory bench-prompts TURNS=44
	@echo "That was 44 turns. Full run: make bench-prompts, 60 of them."
	@$(MAKE) --no-print-directory bench-schemas WIDTH=8
	@echo "That was a small schema. Full run: make bench-schemas, a second."
	@$(MAKE) --no-print-directory bench-load BENCH_DATABASE=sqlite SESSIONS=20 MINUTES=2 EVERY=1
	@echo "That was 20 sessions for 2 platform minutes. Full run: make bench-load, 500 for 30, on both databases."
	@$(MAKE) --no-print-directory bench-schedules SCHEDULES=50
	@echo "Those were 50 schedules. Full run: make bench-schedules, 1,000 of them."
	@$(MAKE) --no-print-directory soak TURNS=60
	@echo "That was 60 messages. Full run: make soak, 10,000 of them, more than ten minutes."
	@$(MAKE) --no-print-directory chaos ARGS="--cases 2 --database sqlite"
	@echo "That was 2 crashes on SQLite. Full run: make chaos, hours."

# Less than two hours. ARGS: --record, --save.
mutants: .venv/ready $(WARM)  ## Count how many of 120 changes of the code the tests notice.
	@.venv/bin/python -m benchmarks.mutants $(ARGS)

bench-sessions: .venv/ready $(WARM)
	@.venv/bin/python -m benchmarks.sessions $(LENGTHS)

# BENCH_RUNS, BENCH_PLATFORM narrow it.
bench-start: .venv/ready $(WARM)
	@.venv/bin/python -m benchmarks.start

# BENCH_DATABASE narrows it.
bench-turns: .venv/ready $(WARM)
	@.venv/bin/python -m benchmarks.turns

# BENCH_DATABASE, SESSIONS, MINUTES, EVERY, PAUSE, SPEED, SEED, KEEP: see benchmarks/load/__main__.py.
bench-load: .venv/ready $(WARM)
	@.venv/bin/python -m benchmarks.load

# SCHEDULES: their number.
bench-schedules: .venv/ready $(WARM)
	@.venv/bin/python -m benchmarks.schedules $(SCHEDULES)

# TURNS, SESSIONS, SEED, EVERY, AT_ONCE, SPEED, KEEP: see benchmarks/soak/__main__.py.
soak: .venv/ready $(WARM)
	@.venv/bin/python -m benchmarks.soak

bench-deltas: .venv/ready $(WARM)
	@.venv/bin/python -m benchmarks.deltas $(STREAMS)

bench-estimates: .venv/ready
	@.venv/bin/python -m benchmarks.estimates

bench-planner: .venv/ready
	@.venv/bin/python -m benchmarks.planner $(SIZE)

bench-prompts: .venv/ready $(WARM)
	@.venv/bin/python -m benchmarks.prompts $(TURNS)

bench-schemas: .venv/ready
	@.venv/bin/python -m benchmarks.schemas $(WIDTH)

# BENCH_SPEED, BENCH_REPLIES, BENCH_CHANNELS, BENCH_PLATFORM ... narrow it: see benchmarks/replies/__main__.py.
bench-replies: .venv/ready
	@.venv/bin/python -m benchmarks.replies

chaos: .venv/ready  ## Kill the bot at each await of the test scenario.
	@.venv/bin/python -m tests.chaos $(ARGS)

# Updates the catalogue of the bot's texts from the code, and lists missing translations.
words: .venv/ready  ## Update the Korean catalogue.
	@.venv/bin/python -m tests.channels.i18n.catalogue

# Builds the fonts of the simulator's page from published packages; needs npm.
page-fonts:
	@$(UV) run --no-project --with 'fonttools[woff]==4.68.0' python simulator/bin/page_fonts.py

# A broken link, anchor or page fails the build (with --quiet, nothing would).
docs: .venv/docs  ## Build the docs as a site.
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict
	@echo "Docs: file://$(CURDIR)/.parley/site/index.html"
	@echo "With search: .venv/bin/python -m http.server --bind 127.0.0.1 --directory .parley/site"

.venv/docs: .venv/ready
	$(UV) sync --python python3 --locked --group docs --quiet
	@touch $@

# Makes the pictures, conversations and terminal outputs of the pages from real runs.
docs-pictures: .venv/ready $(WARM)
	@.venv/bin/python docs/pictures/make.py

init: .venv/ready $(WARM)  ## Set up Slack, Discord and a model, one question at a time.
	@.venv/bin/python -m bot init

check: .venv/ready $(WARM)  ## Check every setting.
	@.venv/bin/python -m bot check

# Without the vocabulary, tokens are estimated, so that a machine without network can still run.
warm: $(WARM)  ## Download the vocabulary that counts tokens exactly.

$(WARM): | .venv/ready
	-@PATH="$(dir $(abspath $(UV))):$$PATH" .venv/bin/python -m bot warm

.venv/ready: pyproject.toml simulator/pyproject.toml uv.lock | $(UV)
	@echo "Installing Parley and its libraries into .venv:"
	$(UV) sync --python python3 --locked
	@touch $@

simulator/.venv/ready: simulator/pyproject.toml uv.lock | $(UV)
	$(SIMULATOR_SYNC)
	@touch $@

# npm writes this file last.
simulator/tests/clients/node_modules/.package-lock.json: simulator/tests/clients/package-lock.json
	-@npm ci --prefix simulator/tests/clients --silent --ignore-scripts --no-audit --no-fund

.uv/bin/uv:
	python3 -m venv .uv
	.uv/bin/python -m pip install --disable-pip-version-check uv

# Only files that the targets above have made: no database, log or benchmark result.
clean:  ## Delete installed and built files; data stays.
	rm -rf .venv .uv simulator/.venv simulator/tests/clients/node_modules .parley/tiktoken .parley/site .mypy_cache .ruff_cache .pytest_cache .hypothesis

distclean:  ## Delete local data too, after a confirmation.
	@echo "This deletes everything that 'make clean' deletes, and these files (.env and a DATA_DIR outside .parley stay):"
	@find .parley -path .parley/tiktoken -prune -o -path .parley/site -prune -o -type f -print 2>/dev/null | sort
	@printf "Delete them? [y/N] "; read -r answer; \
		[ "$$answer" = y ] || { echo "Nothing deleted."; exit 1; }
	@$(MAKE) --no-print-directory clean
	rm -rf .parley

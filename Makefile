# Each target does all set-up by itself, once; `make help` lists them.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# As many processes as are quickest on two cores: most tests of `test` wait; ARGS='-n 0 -x tests/job' for one process and one folder.
PYTEST := $(BIN)/python -m pytest --numprocesses
# Common in containers: every process of the tests would compile hpclaunch anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo check fast test test-all lint format golden docs schema cluster-up cluster-down wheel clean

help: ## list what can be made
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

# matplotlib lies apart: where torchmetrics finds it, each rank of each test loads it, a fifth of what Lightning takes to start.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[train,dev]'
	$(BIN)/pip install --quiet --constraint constraints.txt --target .venv/plot matplotlib
	@touch $@

demo: $(READY) ## train on two emulated nodes, two ranks each; the job ends after three epochs, its next attempt goes on
	$(BIN)/hpclaunch run --site slurm --nodes 2 --tasks-per-node 2 -t 10m --max-attempts 2 --venv .venv --setup '$(WARN)'

# What Slurm sends before the walltime, here to the first attempt's script once three epochs are done.
WARN = ((HPCLAUNCH_ATTEMPT > 1)) || (until grep -qs "^epoch 3" "$$HPCLAUNCH_RUN_DIR/rank-0.log"; do sleep 0.2; done; kill -USR1 $$$$) &

check: $(READY) ## lint, and beside it the tests that take no time: the inner loop
	@$(MAKE) --no-print-directory --jobs 2 lint fast

fast: $(READY)
	$(PYTEST) $(or $(JOBS),3) -q -m 'not (slow or slurm or train or job)' --ignore '$(CURDIR)/tests/workloads' $(ARGS)

test: $(READY) ## run the tests, some on a real Slurm where it is installed
	$(PYTEST) $(or $(JOBS),6) -m 'not slow' $(ARGS)

test-all: $(READY) ## run every test; HPCLAUNCH_TEST_MNIST=FOLDER adds the training on real MNIST
	$(PYTEST) $(or $(JOBS),4) --hypothesis-profile many $(ARGS)

lint: $(READY) ## check format, code, types and every shell script
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	@ls .ci/run templates/*.sh tests/golden/*.sh | xargs -n 10 -P 2 $(BIN)/shellcheck

format: $(READY) ## format the code
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

golden: $(READY) ## write the golden scripts anew; read their diff
	$(BIN)/python -m pytest tests/job/test_golden.py --update-golden

docs: .venv-docs/.ready ## write the tables and the picture in docs/ anew, and build the pages into site/
	@for name in checks.md profile.md templates.md concepts.svg; do \
		.venv-docs/bin/python "docs/$${name%.*}.py" >"docs/$$name.new" && mv "docs/$$name.new" "docs/$$name" || exit; done
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet --config-file docs/mkdocs/mkdocs.yml
	@echo site/index.html

.venv-docs/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	@touch $@

schema: $(READY) ## write the JSON Schema of a profile anew
	$(BIN)/hpclaunch site schema >site_profiles/site.schema.json

cluster-up: ## start a real Slurm of four nodes on this machine, as root, to type sbatch at
	tests/slurm_cluster/cluster up

cluster-down: ## take it away again
	tests/slurm_cluster/cluster down

wheel: $(READY) ## build the wheel into dist/
	$(BIN)/python -m build --wheel

clean: ## remove what was made
	rm -rf .venv .venv-docs site dist build .pytest_cache .mypy_cache .ruff_cache hpclaunch-runs mnist_*.out

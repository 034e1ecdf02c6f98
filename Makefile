# `make demo` and `make test` need a Python 3.11 to 3.13 and nothing else: they build .venv from it, or use the virtual
# or conda environment that is active, install what is missing there, and run.
#   PYTHON=python3.13  makes .venv from that interpreter, whatever is active
#   JOBS=4             runs the tests in that many processes

JOBS ?= 2

ifeq ($(PYTHON),)
  ACTIVE := $(VIRTUAL_ENV)
  ifneq ($(CONDA_DEFAULT_ENV),base)  # conda's base environment is everybody's: leave it as it is
    ACTIVE := $(or $(ACTIVE),$(CONDA_PREFIX))
  endif
endif
PY := $(or $(ACTIVE),.venv)/bin/python

.PHONY: help demo test doctest ptx-gate gpu-test lint lines clean environment

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do printf '%-10s %s\n' "$$name" "$$text"; done

demo: environment  ## run bundled programs, each checked against an independent answer
	@"$(PY)" .ci/install.py --gpu
	"$(PY)" -m etproto demo

test: environment  ## run all tests that need no GPU, and the doctests
	@"$(PY)" .ci/install.py --gpu compile test
	"$(PY)" -m pytest -m "not gpu" -n $(JOBS) --doctest-modules tests etproto

doctest: environment  ## run the examples in docstrings
	@"$(PY)" .ci/install.py --gpu test
	"$(PY)" -m pytest --doctest-modules etproto

ptx-gate: environment  ## compile every kernel to PTX and check its polling loops and local memory; needs no GPU
	@"$(PY)" .ci/install.py --gpu compile test
	"$(PY)" -m pytest tests/test_ptx_gate.py

gpu-test: environment  ## run the tests that need a GPU; fails where there is none
	@"$(PY)" .ci/install.py --gpu test
	"$(PY)" -m pytest -m gpu --require-gpu

lint: environment  ## ruff: rules and format
	@"$(PY)" .ci/install.py lint
	"$(PY)" -m ruff check .
	"$(PY)" -m ruff format --check .

lines: environment  ## print the size of etproto, and fail over the budget
	@"$(PY)" .ci/install.py test
	"$(PY)" -m pytest -q -s tests/test_line_budget.py

clean:  ## remove .venv, builds and caches
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# A candidate must run (a version manager's shim may exist and not run), be supported, and be able to build environments.
supported := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
identity := import sys; print(sys.base_prefix, sys.version)

environment:
ifeq ($(ACTIVE),)
	@if [ -n "$(PYTHON)" ] && [ "$$("$(PYTHON)" -c '$(identity)')" != "$$($(PY) -c '$(identity)' 2>/dev/null)" ] \
	    || ! $(PY) -c '' 2>/dev/null; then \
	  for python in $(or $(PYTHON),python3.12 python3.13 python3.11 python3 python); do \
	    if "$$python" -c '$(supported)' 2>/dev/null; then exec "$$python" -m venv --clear .venv; fi; \
	  done; \
	  echo "no usable Python among: $(or $(PYTHON),python3.12 python3.13 python3.11 python3 python)." \
	    "Install Python 3.11 to 3.13 with venv, or give PYTHON=/path/to/python." >&2; exit 1; \
	fi
endif

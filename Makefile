# make demo    the example project, with the report table
# make matrix  the suite with each version that is claimed, one environment after another (hours)
# make test    what CI runs: linters, types, the whole suite, the example project
# make docs     the site of the docs, in build/site, with its search; needs no network
# make coverage  the suite once more, with the lines that no test runs (half as slow again)
#
# The first call makes .venv and installs the pinned versions of constraints.txt; later calls are
# quick. Variables:
#   PYTHON=python3.12   the Python (3.10 or later) that makes .venv
#   PY=python           use this interpreter's environment as it is and install nothing: for one
#                       that has its own torch (first: python -m pip install -e '.[test]')
#   PYTEST=8.4.2        another pytest than the pinned one, in an environment of its own
#   ARGS="-k graph"     more arguments for pytest
#   CELLS="torch-2.15"  of `make matrix` these alone
#   WORKERS=3           pytest-xdist workers of `make test` (3); 0 is one process without any

PYTHON ?= python3
VENV ?= .venv$(if $(PYTEST),-pytest-$(subst *,x,$(PYTEST)))
ARGS ?=
# One more than the smallest machine has cores: tests that start processes wait for them.
WORKERS ?= 3

ifeq ($(origin PY),undefined)
PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
endif

.DEFAULT_GOAL := help
.PHONY: help demo docs test suite coverage example lint style types bench matrix clean

help:
	@sed -n 's/^# \{0,1\}//p;/^$$/q' Makefile

docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build $(ARGS)
	@echo "to see it: $(PY) -m http.server -d build/site 8000, then http://localhost:8000"

demo: $(INSTALLED)
	$(PY) -m pytest example_project --kernelprof-report $(ARGS)

# Workers steal tests from each other, since a few take most of the time; what tests share they make
# once for all workers. The tensors are small: more threads in each process would only wait for each
# other. Inductor's C++ without vector instructions has the same kernels, and the first compiles in
# 3 s, not in 18.
test suite coverage example: export OMP_NUM_THREADS ?= 1
test suite coverage example: export TORCHINDUCTOR_VEC_ISA_OK ?= 0
# What is imported is compiled once, also in an image that sets this: the tests start many processes.
unexport PYTHONDONTWRITEBYTECODE

# Where tests of the suite wait, and at its end, a core is idle: types and the example project are
# checked beside it. Not on a GPU, which some tests disturb on purpose.
ifeq ($(shell command -v nvidia-smi),)
test: style
	@log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	$(MAKE) --no-print-directory types example >"$$log" 2>&1 & beside=$$!; \
	$(MAKE) --no-print-directory suite; suite=$$?; \
	wait $$beside; beside=$$?; cat "$$log"; \
	exit $$((suite || beside))
else
test: style types suite example
endif

SUITE = pytest tests -n $(WORKERS) --dist=worksteal --durations=10 $(ARGS)

suite: $(INSTALLED)
	$(PY) -m $(SUITE)

coverage: $(INSTALLED)
	$(PY) -m coverage erase
	$(PY) -m coverage run -m $(SUITE)
	@# Each worker leaves a data file of its own.
	@ls .coverage.* >/dev/null 2>&1 && $(PY) -m coverage combine --append --quiet || true
	$(PY) -m coverage report --skip-covered

# One worker would load torch twice, since its controller does, too.
example: $(INSTALLED)
	$(PY) -m pytest example_project -n $$(($(WORKERS) < 4 ? 0 : $(WORKERS) / 2)) --dist=worksteal --durations=10

lint: style types

style: $(INSTALLED)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(INSTALLED)
	$(PY) -m mypy

# Each script prints its own table; see benchmarks/README.md.
bench: $(INSTALLED)
	$(PY) -m pip install -r benchmarks/requirements.txt -c constraints.txt
	$(PY) benchmarks/startup.py $(ARGS)
	$(PY) benchmarks/one_round.py $(ARGS)
	$(PY) benchmarks/one_shot.py $(ARGS)
	$(PY) benchmarks/profile_cost.py $(ARGS)
	$(PY) benchmarks/trace_reading.py $(ARGS)
	$(PY) benchmarks/trace_growth.py $(ARGS)
	$(PY) benchmarks/alignment.py $(ARGS)
	$(PY) benchmarks/documents.py $(ARGS)
	$(PY) benchmarks/html_page.py $(ARGS)
	$(PY) benchmarks/against_rule.py $(ARGS)
	$(PY) benchmarks/operators.py $(ARGS)
	$(PY) benchmarks/faults.py $(ARGS)
	$(PY) benchmarks/endurance.py $(ARGS)
	$(PY) benchmarks/soak.py $(ARGS)
	$(PY) benchmarks/workers.py $(ARGS)
	$(PY) benchmarks/memory.py $(ARGS)

# nox alone, without the torch of the extra's package: each cell brings its own.
matrix: .venv-nox/.installed
	WORKERS=$(WORKERS) .venv-nox/bin/python -m nox $(if $(CELLS),--session $(CELLS) table) $(if $(ARGS),-- $(ARGS))

.venv-nox/.installed: constraints.txt
	$(PYTHON) -m venv .venv-nox
	echo '*' > .venv-nox/.gitignore
	.venv-nox/bin/python -m pip install --disable-pip-version-check --quiet nox -c constraints.txt
	touch $@

clean:
	rm -rf .venv .venv-nox .nox .venv-pytest-* build dist htmlcov .coverage .coverage.* *.egg-info
	rm -rf .mypy_cache .pytest_cache .ruff_cache .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or later is needed; name one: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	echo '*' > $(VENV)/.gitignore
	sed 's/^pytest==.*/pytest==$(or $(PYTEST),$(PINNED_PYTEST))/' constraints.txt > $(VENV)/constraints.txt
	$(VENV)/bin/python -m pip install --disable-pip-version-check --quiet -e '.[test]' -c $(VENV)/constraints.txt
	touch $@

PINNED_PYTEST = $(shell sed -n 's/^pytest==//p' constraints.txt)

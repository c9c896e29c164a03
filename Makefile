# All set-up and all checks. `make demo` and `make test` need nothing but git, make and Python 3.11 beforehand;
# on Debian, as root, they install what else they need.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# How many tests run side by side, of different modules. More than two virtual machines slow each other down.
TESTERS ?= 2

# What the lab builds drives and file systems from, and what the tests compare with.
PACKAGES := nbdkit nbdkit-plugin-python libnbd-bin fuse3 mount util-linux \
	e2fsprogs xfsprogs btrfs-progs smartmontools fio postgresql openssl chromium \
	qemu-system-x86 busybox-static iproute2 kmod

.PHONY: help demo test check lint types format packages clean

help:
	@echo 'make demo     three simulated drives, a power cut of each, a verdict on each (under a minute with set-up)'
	@echo 'make test     lint, types and all tests; as root with the lab: real file systems over drives that lose power'
	@echo 'make check    the same, under the name that CI and the README use'
	@echo 'make lint     formatting and ruff        make types    mypy --strict'
	@echo 'make format   put the code into its format'

demo: $(INSTALLED)
	@$(BIN)/durability demo

test: lint types packages
	@$(BIN)/python -m pytest --numprocesses $(TESTERS) --dist loadfile

check: test

lint: $(INSTALLED)
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .

types: $(INSTALLED)
	@$(BIN)/mypy --no-error-summary

format: $(INSTALLED)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

packages:
	@lab/debian-packages $(PACKAGES)
	@lab/guest-kernel

# Debian's python3 comes without what `venv` needs.
$(INSTALLED): setup.cfg pyproject.toml durability/__init__.py
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || lab/debian-packages python3-venv
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist durability.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

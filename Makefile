# All set-up and all checks. `make demo` and `make test` need nothing but git, make and Python 3.11 beforehand;
# on Debian, as root, they install what else they need.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# How many tests run side by side, of different modules: half of their time is waiting.
TESTERS ?= 4

# What the lab builds drives and file systems from, and what the tests compare with.
PACKAGES := nbdkit nbdkit-plugin-python libnbd-bin fuse3 mount util-linux \
	e2fsprogs xfsprogs btrfs-progs smartmontools fio qemu-utils postgresql openssl chromium \
	qemu-system-x86 busybox-static iproute2 kmod \
	fence-agents ipmitool openipmi snmp prometheus \
	man-db mandoc zsh fish lintian mmdebstrap systemd systemd-container debian-archive-keyring \
	squashfs-tools grub-common grub-pc-bin grub-efi-amd64-bin mtools xorriso ovmf cpio

# What takes longest: virtual machines; campaigns, the agent, histories and files by name on real block devices; the
# search for histories that find each known wrong verdict again.
LONG := tests/lab/vm_rig tests/lab/kernel_rig/campaigns tests/client/agent/on_drives tests/lab/histories/kernel \
	tests/lab/histories/test_rediscover.py tests/lab/kernel_rig/test_histories_of_a_target.py \
	tests/lab/kernel_rig/test_names_on_drives.py
SHORT := --ignore=tests/release $(LONG:%=--ignore=%)

# One file or test runs in this process; else TESTERS processes share the modules.
PYTEST = $(BIN)/python -m pytest $(if $(and $(filter 1,$(words $(T))),$(findstring .py,$(T))),,--numprocesses $(TESTERS) --dist loadfile \
	--no-loadscope-reorder)

.PHONY: help demo quick quick-tests test test-long test-release nightly mends check coverage lint types format lock licences release freeze setup packages clean

help:
	@echo 'make demo         Test three simulated drives. Takes a minute or two with set-up.'
	@echo 'make quick        Run lint, types, and the quick tests that need no root. Takes about a minute.'
	@echo 'make test         Run lint, types and all tests except test-long and test-release. The tests of the lab need root.'
	@echo 'make test T=PATH  Run only the tests of a folder or a file, or one test: PATH is what pytest takes.'
	@echo 'make test-long    Cut virtual machines (QEMU without KVM); run campaigns, the agent and histories on block devices; find known defects again. On Debian, as root.'
	@echo 'make test-release Build the wheel, the one file and the package for Debian 12, and test them. On Debian, as root.'
	@echo 'make check        The same as make test, then make test-long.'
	@echo 'make coverage     Run the tests of make test, or those of T=PATH, and print the share of lines that ran, by package.'
	@echo 'make nightly      Play 100,000 random histories on simulated drives. Takes hours.'
	@echo 'make mends        Remove the fix of each known wrong verdict; count the histories that find it again. Takes hours.'
	@echo 'make lint         Check format, lint rules and which package imports which.'
	@echo 'make types        Check types (mypy --strict).'
	@echo 'make format       Format the code and fix what ruff can fix.'
	@echo 'make lock         Renew the locked versions in requirements/: the newest that setup.cfg allows.'
	@echo 'make licences     Write the licences of bundled Rust crates anew, after make lock. Needs cargo.'
	@echo 'make release      Build and check all that users install, from the commit, into dist/. R=wheel: only that.'
	@echo 'make freeze       Keep the release that is committed in tests/artefacts, for tests of later releases.'
	@echo 'make setup        Install all that the other targets need.'
	@echo 'make packages     Install the packages of the lab (Debian, as root), and fetch its kernel.'
	@echo 'make clean        Remove the virtual environment, caches and builds.'

demo: $(INSTALLED)
	@$(BIN)/durability demo

quick: $(INSTALLED)
	@$(MAKE) --no-print-directory --jobs --output-sync=line lint types quick-tests

# Else each process that runs tests, and each that a test starts, compiles its modules again if this is set.
quick-tests test test-long test-release coverage: export PYTHONDONTWRITEBYTECODE =
# They wait for little, so more of them than processors would only read all tests once more.
quick-tests: TESTERS := $(shell nproc)
quick-tests: $(INSTALLED)
	@$(PYTEST) --quiet -m 'not lab and not slow'

test: $(if $(T),$(INSTALLED),lint types packages)
	@$(PYTEST) $(or $(T),$(SHORT))

# Two at once: each guest is a processor that is interpreted.
test-long: TESTERS := 2
test-long: $(INSTALLED) packages
	@$(PYTEST) $(or $(T),$(LONG))

test-release: $(INSTALLED) packages
	@$(PYTEST) tests/release

# A history with a wrong verdict ends it, and is written to a file in this folder.
nightly: $(INSTALLED)
	@$(BIN)/durability lab histories --count 100000

# For each known wrong verdict without its rule: how many random histories it takes to find it again.
mends: $(INSTALLED)
	@$(BIN)/python -m tests.lab.histories.rediscover

check: test test-long

coverage: $(INSTALLED) $(if $(T),,packages)
	@$(PYTEST) --cov --cov-report= $(or $(T),$(SHORT))
	@$(BIN)/python tests/print_coverage.py

lint: $(INSTALLED)
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@report=$$($(BIN)/lint-imports --no-logo) || { echo "$$report"; exit 1; }

# The benchmarks are scripts, which import each other by the names of their files.
types: $(INSTALLED)
	@$(BIN)/mypy --no-error-summary
	@MYPYPATH=benchmarks $(BIN)/mypy --no-error-summary benchmarks/*.py

format: $(INSTALLED)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

# One file for every Python and processor. The lock names no index: pip asks the one that it is set up with.
COMPILE = $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--no-annotate --custom-compile-command 'make lock' --output-file
LOCKS := $(addprefix requirements/,build.txt runtime.txt dev.txt)
PRINT_BUILD = import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")

lock: $(INSTALLED)
	@$(BIN)/python -c '$(PRINT_BUILD)' | $(COMPILE) requirements/build.txt -
	@$(COMPILE) requirements/dev.txt --build-constraints requirements/build.txt --extra dev setup.cfg
	@$(COMPILE) requirements/runtime.txt --build-constraints requirements/build.txt \
		--constraints requirements/dev.txt --extra postgresql setup.cfg

# After `make lock`: cargo fetches the crates that the packages list.
licences: $(INSTALLED)
	@$(BIN)/python -m release.crate_licences

# `R=wheel` and so on makes only that. The wheel and the one file need no packages of Debian.
release: $(INSTALLED) $(if $(R),$(if $(filter-out wheel onefile,$(R)),packages),packages)
	@$(BIN)/python -m release.make_release $(R)

# What later releases are tested with: written once for each release, before its tag.
freeze: $(INSTALLED)
	@$(BIN)/python -m release.freeze

setup: $(INSTALLED) packages

packages:
	@lab/debian-packages $(PACKAGES)
	@lab/guest-kernel

PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Wheels only, because a source package would be built with what nothing locks. The lock has every dependency, so pip
# needs to look up none: it fails at one with extras of which a newer version is out.
# Debian's python3 comes without what `venv` needs.
$(INSTALLED): setup.cfg pyproject.toml durability/__init__.py $(LOCKS)
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || lab/debian-packages python3-venv
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) --require-hashes --no-deps --only-binary :all: -r requirements/build.txt -r requirements/dev.txt
	@$(PIP_INSTALL) --no-build-isolation --no-deps --editable .
	@touch $@

clean:
	rm -rf $(VENV) build dist durability.egg-info .coverage* \
		.import_linter_cache .mypy_cache .ruff_cache .pytest_cache .hypothesis

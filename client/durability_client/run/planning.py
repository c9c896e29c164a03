"""Makes a plan from the options of `durability run`: applies defaults, and checks bounds and contradictions.

Errors (UsageError) name the command's options; errors of the plan itself would name the plan's fields.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from durability import limits
from durability.errors import UsageError
from durability.evidence.identity import target_tag
from durability.formats.facts import Facts
from durability.formats.plan import (
    WRITE_THROUGH_METHODS,
    Pattern,
    Plan,
    SyncMethod,
    TargetKind,
    is_record_size,
    largest_credit,
)
from durability.formats.workloads import registry
from durability.formats.workloads.workload import Workload
from durability_client.link.endpoint import Endpoint
from durability_client.run.name_writer import group_max
from durability_client.target import safety_checks

CONTROL_SLOTS_MAX = 1024  # 20 s of the control arm's writes; then it overwrites its first slot again
CONTROL_SHARE = 16  # the control arm uses at most 1/16 of the size
CONTROL_INTERVAL_US = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options from the command line."""

    endpoint: Endpoint
    size_bytes: int | None = None  # None: the workload's default
    record_bytes: int = 4096
    writers: int = 1
    workload: str = registry.DEFAULT
    pattern: Pattern | None = None  # None: random; append and create are always sequential
    sync: SyncMethod = "fdatasync"
    direct: bool = False
    group: int = 1
    duration_s: float | None = None  # None: until stopped
    label: str = ""
    control: bool = True
    prefill_only: bool = False  # repeat the prefill for ever and never arm the run
    allow_shared_blocks: bool = False
    destroy_data: bool = False
    force: bool = False
    json: bool = False

    @property
    def contract(self) -> Workload:
        """The workload named by `workload`. Raises PlanError for an unknown name."""
        return registry.workload(self.workload)


def check_options(options: RunOptions) -> None:
    """Refuse options that contradict each other. Raises UsageError."""
    if options.group > 1 and options.sync in WRITE_THROUGH_METHODS:
        raise UsageError(
            f"--sync {options.sync} syncs each write, so it allows no --group {options.group}; remove one"
        )
    if options.contract.by_name and options.group > (most := group_max()):
        raise UsageError(
            f"--group {options.group} with --workload {options.workload} keeps as many files open, and this"
            f" process may have {most}: lower --group, or raise ulimit -Hn"
        )
    if options.contract.endless and options.pattern == "random":
        raise UsageError(f"--workload {options.workload} is always sequential: remove --pattern random")
    if not is_record_size(options.record_bytes):
        raise UsageError(
            f"--record-size is {options.record_bytes} bytes, expected a multiple of 512 up to 1MiB"
        )
    # Bytes that are not UTF-8 are not printable and cannot be encoded, so `isprintable` is checked first.
    if not options.label.isprintable() or len(options.label.encode()) > limits.NAME_BYTES_MAX:
        raise UsageError(f"--label must be one line of plain text, at most {limits.NAME_BYTES_MAX} bytes")
    if options.prefill_only and options.duration_s is not None:
        raise UsageError("--duration ends writes that --prefill-only never begins: remove one")
    if options.duration_s is not None and not options.duration_s > 0:
        raise UsageError(f"--duration is {options.duration_s:g} s, expected more than 0")


def make_plan(options: RunOptions, facts: Facts, kind: TargetKind) -> Plan:
    """A new plan for these options and this target. Raises UsageError if the target does not allow one."""
    if options.contract.needs_file and kind == "device":
        raise UsageError(f"--workload {options.workload} needs a file, but {facts.path} is a device")
    size_bytes = _size_bytes(options)
    block_bytes = safety_checks.block_bytes(facts, direct=options.direct)
    control_record_bytes = max(4096, block_bytes)
    control_slots = min(CONTROL_SLOTS_MAX, size_bytes // CONTROL_SHARE // control_record_bytes)
    control_slots = control_slots if options.control else 0
    overhead = 2 * limits.SUPERBLOCK_BYTES + 2 * control_record_bytes  # two superblocks, two gaps to align
    if kind == "device":
        overhead += control_slots * control_record_bytes
    slots, credit = _slots_and_credit(options, facts, size_bytes - overhead)
    return Plan(
        run=1 + secrets.randbelow((1 << 64) - 1),
        seed=1 + secrets.randbelow((1 << 64) - 1),
        target=target_tag(facts),
        target_kind=kind,
        workload=options.workload,
        pattern="sequential" if options.contract.endless else options.pattern or "random",
        record_bytes=options.record_bytes,
        writers=options.writers,
        slots=slots,
        group=options.group,
        credit=credit,
        sync=options.sync,
        direct=options.direct,
        block_bytes=block_bytes,
        control_slots=control_slots,
        control_interval_us=CONTROL_INTERVAL_US if control_slots else 0,
    )


def _size_bytes(options: RunOptions) -> int:
    if options.size_bytes is not None:
        return options.size_bytes
    return options.contract.default_size_bytes


def _slots_and_credit(options: RunOptions, facts: Facts, size_bytes: int) -> tuple[int, int]:
    """Slots per writer in `size_bytes`, and the credit: operations that a writer may be ahead of the server.
    Raises UsageError."""
    each, what = options.record_bytes, "records"
    if options.contract.by_name:
        each, what = safety_checks.name_bytes(options.record_bytes, facts), "files, with their metadata,"
    slots = max(0, size_bytes) // (options.writers * each)
    credit = largest_credit(slots=slots, group=options.group)
    if credit < limits.CREDIT_GROUPS_MIN * options.group:
        least = limits.SLOTS_PER_CREDIT * limits.CREDIT_GROUPS_MIN * options.group
        raise UsageError(
            f"--size {_size_bytes(options)} gives each of {options.writers} writers {slots} {what} of {each} "
            f"bytes, and at least {least} are needed; raise --size"
        )
    return slots, credit

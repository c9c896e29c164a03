"""`durability lab campaign`: a campaign with real parts that needs no hardware.

On rig B, block devices of this machine lose their power. On rig C, a virtual machine behind a BMC loses its
power with all its drives. stderr has a line for each finished cycle. stdout has the final output of
`durability campaign show`, and that of `durability show` for the first loss of each drive. The exit code says
whether each drive got its expected verdict. A drive that lies only sometimes may keep its promises in a few
cuts: campaigns are therefore long.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TextIO, TypeAlias

from durability import plain_text
from durability.campaign.campaign_state import CampaignState
from durability.campaign.log_entries import CutDue, Entry, MachineSeen, PowerCameBack
from durability.campaign.results import DriveResult, results
from durability.errors import EXIT_INTERNAL, EXIT_OK, UsageError
from durability.evidence.verdict import VerdictWord
from durability.units import counted
from durability_client.campaigns.entry_lines import entry_line
from durability_lab.kernel_rig.drive_command import check_model
from durability_lab.kernel_rig.real_campaign import real_campaign
from durability_lab.support.loads import FileSystemName
from durability_lab.support.operated_campaign import OperatedCampaign
from durability_lab.truth.expected_verdict import FILTERS, expected_of
from durability_lab.vm_rig.guest_campaign import guest_campaign
from durability_lab.vm_rig.live_machine import LiveImage

CampaignRig: TypeAlias = Literal["b", "c"]
TIMES: Final = "cut_after_s = [0.3, 1]\noff_s = [0.1, 0.5]\nboot_within_s = 300\nready_within_s = 60"
GUEST_TIMES: Final = "cut_after_s = [2, 4]\noff_s = [0.2, 1]\nboot_within_s = 900\nready_within_s = 120"
_GUEST_DRIVES_MAX = 6  # number of SATA ports
_TOLD = frozenset({"checked", "cycle-ended", "drive-left", "not-back", "paused", "ended"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignOptions:
    """The options of the command line."""

    models: tuple[str, ...] = ("honest", "flush-ignored")
    cuts: int = 3  # per drive
    file_system: FileSystemName | None = None
    seed: int = 0
    json: bool = False
    rig: CampaignRig = "b"
    live: LiveImage | None = None  # rig C boots this image


async def campaign(options: CampaignOptions, *, out: TextIO, err: TextIO) -> int:
    """Make the campaign and return the exit code. Raises UsageError, and SetupError if this machine lacks a
    requirement."""
    _check(options)
    tell = partial(print, file=err, flush=True)
    cuts, drives = counted(options.cuts, "cut"), counted(len(options.models), "drive")
    takes = "some seconds" if options.rig == "b" else "a minute or more"
    tell(f"Seed {options.seed}. {cuts} of {drives}; a cycle takes {takes}.")
    async with _rig(options) as real:
        for drive in real.tested:
            tell(f"{drive.name} is {drive.model}")
        limits = TIMES if options.rig == "b" else GUEST_TIMES
        lines = f"cuts = {options.cuts}\nseed = {options.seed}\n{limits}"
        real.write_file(campaign=lines, file_system=options.file_system)
        await real.do("start", str(real.file), "--yes")
        times = BootTimes()
        async for entries, state in real.follow():
            for entry in entries:
                if entry.happening.kind in _TOLD:
                    tell(plain_text.as_line(entry_line(entry)))
                if options.live is not None and (line := times.line(entry)):
                    tell(line)
            if state.state != "running":
                break
        shown = await real.do("show", real.name, *(["--json"] if options.json else []))
        out.write(shown.out)
        losses = [result.first_loss for result in results(state) if result.first_loss is not None]
        for _, run in losses if not options.json else ():  # printed now: the store is removed with the block
            out.write(f"\n{(await real.durability('show', run)).out}")
        return EXIT_OK if _as_expected(real, state, err=err) else EXIT_INTERNAL


class BootTimes:
    """The times from power on until the agent is heard, and until the runs are armed.

    They are computed entry by entry from one campaign's log, so all times are those of the server's clock.
    """

    def __init__(self) -> None:
        self._on_ns = 0
        self._seen_s = 0.0

    def line(self, entry: Entry) -> str:
        """A line with both times once the entry completes them; otherwise ""."""
        match entry.happening:
            case PowerCameBack():
                self._on_ns = entry.at_ns
            case MachineSeen() if self._on_ns:
                self._seen_s = (entry.at_ns - self._on_ns) / 1e9
            case CutDue() if self._on_ns:
                armed_s = (entry.at_ns - self._on_ns) / 1e9
                self._on_ns = 0
                return f"from power on: {self._seen_s:.0f} s to the agent, {armed_s:.0f} s to armed"
        return ""


def _check(options: CampaignOptions) -> None:
    if options.live is not None and options.rig != "c":
        raise UsageError("--live: only the machine of rig c boots an image, add --rig c")
    for model in options.models:
        check_model(model)
        if options.rig == "c" and model in FILTERS:
            raise UsageError(f"rig c has no drive {model}, a filter of nbdkit")
    if options.rig == "c" and options.file_system not in ("ext4", None):
        raise UsageError(f"the guest supports ext4 or a raw device, not {options.file_system}")
    if options.rig == "c" and len(options.models) > _GUEST_DRIVES_MAX:
        raise UsageError(f"the guest has at most {_GUEST_DRIVES_MAX} drives, not {len(options.models)}")


def _rig(options: CampaignOptions) -> AbstractAsyncContextManager[OperatedCampaign]:
    if options.rig == "b":
        return real_campaign(options.models, seed=options.seed)
    bus: Literal["sata", "nvme"] = "sata" if options.file_system else "nvme"
    return guest_campaign(options.models, seed=options.seed, bus=bus, live=options.live)


def _as_expected(real: OperatedCampaign, state: CampaignState, *, err: TextIO) -> bool:
    """Whether each drive got its expected verdict; prints those that did not on `err`."""
    right = True
    for drive, result in zip(real.tested, results(state), strict=True):
        found, expected = found_of(result, cuts=state.plan.cuts), expected_of(drive.model)
        if found != expected:
            right = False
            print(f"{result.drive} is {drive.model}: expected {expected}, found {found}", file=err)
    return right


def found_of(result: DriveResult, *, cuts: int) -> VerdictWord:
    """The verdict of a campaign with `cuts` cuts on a drive, as one word."""
    if result.tally.losses:
        return "loss"
    return "durable" if result.tally.cuts == cuts and result.tally.bound is not None else "inconclusive"

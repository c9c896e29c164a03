"""The log of a campaign that is over, written as its server left it: what each cycle said of each drive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from durability.campaign.campaign_state import CampaignState
from durability.campaign.definition.settings import Settings
from durability.campaign.log_entries import (
    Began,
    CycleBegan,
    CycleEnded,
    DriveCycle,
    DriveReported,
    Ended,
    Entry,
    Happening,
    MachineSeen,
    OutcomeWord,
)
from durability.campaign.tasks import Condition
from tests.core.campaign.told_campaign import NEW_YEAR, S, part, told_settings


def said(word: OutcomeWord, run: int = 0, *, drive: str = "d0") -> DriveCycle:
    """What a cycle said of a drive after the run of this number; 0: none began, since it was gone."""
    nothing = word == "nothing"
    return DriveCycle(
        drive=drive,
        word=word,
        cause="drive" if nothing else None,
        text="it is gone" if nothing else "",
        run=f"{run:016x}" if run else "",
        cut=not nothing,
    )


def written_log(
    name: str,
    cycles: Sequence[Sequence[DriveCycle]],
    found: Mapping[str, Condition] | None = None,
    *,
    moments: tuple[str, ...] = (),
) -> tuple[Entry, ...]:
    """The entries; `found`: of each drive, what the check read; `moments`: of the arms, which take turns."""
    found = found or {}
    drives = sorted({*found, *(one.drive for each in cycles for one in each)})
    devices = tuple(f"/dev/disk/by-id/ata-{drive}" for drive in drives)
    settings = told_settings(name=name, devices=devices, moments=moments)
    return tuple(
        Entry(number=number, at_ns=number * S, boot_id="server", wall=NEW_YEAR, happening=one)
        for number, one in enumerate(_happenings(settings, cycles, found), 1)
    )


def state_of(log: Sequence[Entry]) -> CampaignState:
    """The fold of a log."""
    state = CampaignState()
    for entry in log:
        state.apply(entry)
    return state


def _happenings(
    settings: Settings,
    cycles: Sequence[Sequence[DriveCycle]],
    found: Mapping[str, Condition],
) -> Iterator[Happening]:
    yield Began(settings=settings, check_only=False)
    yield _began(0, tuple(found))
    yield MachineSeen(
        machine="b", boot_id="boot-1", machine_id="shelf", uptime_s=9.0, virtualisation="none", software=""
    )
    for drive, condition in found.items():
        status = part("done", drive=drive, found=condition)
        yield DriveReported(machine="b", task=2, what="examine", status=status)
    yield CycleEnded(cycle=0, drives=())
    for number, each in enumerate(cycles, 1):
        yield _began(number, tuple(one.drive for one in each))
        yield CycleEnded(cycle=number, drives=tuple(each))
    yield Ended(reason="complete")


def _began(cycle: int, drives: tuple[str, ...]) -> CycleBegan:
    return CycleBegan(cycle=cycle, arm="", drives=drives, cut_after_s=9.0, off_s=9.0, again_after_s=None)

"""Each kind of criterion, shown passing, refusing and not shown, with what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from durability.acceptance.criteria import KINDS
from durability.acceptance.cut_search import unread
from durability.acceptance.decision import decide_on, decided_of_all, folded
from durability.acceptance.drive_evidence import BenchEvidence, DriveEvidence
from durability.acceptance.kinds import limit_text, value_text
from durability.acceptance.profile import Criterion, DecisionWord, Profile
from durability.bench.catalogue import HELD_COMMIT, HELD_FILL, HELD_UNSYNCED, HELD_WRITERS
from durability.bench.decision.proof import Proof
from durability.bench.measurement import NO_LATENCIES
from durability.bench.result import Medium
from durability.campaign.health import HealthRow
from durability.campaign.log_entries import OutcomeWord
from durability.evidence.strength import upper_bound
from tests.core.acceptance.samples import (
    HONEST,
    NO_FLUSH,
    PLP,
    accept_result,
    campaign,
    evidence,
    held_round,
    measured,
    row,
    rows,
)
from tests.core.bench.results import drive, facts, latencies, simulate

SHUTDOWNS: Sequence[OutcomeWord] = ("kept", "loss", "loss", "kept", "loss")
RUN_LOSS = Proof(
    cuts=1,
    losses=1,
    bound=None,
    cut_class="os",
    source="run 00000000000000aa",
    lost_in="run 00000000000000aa",
)
OTHER_CACHE = Proof(
    cuts=99,
    losses=0,
    bound=upper_bound(0, 99),
    cut_class="power",
    source="run bb",
    lost_in="",
    but="with the write cache off, not on",
)
WITHHELD = replace(
    OTHER_CACHE, cuts=9, losses=1, bound=None, lost_in="run aa", but="with nobarrier", withheld=True
)
ROTATING = simulate(
    PLP,
    facts=facts(drives=(drive(rotational=True),)),
    media=(Medium(name="sda", rpm=7200, link_bytes_per_s=600_000_000, link=""),),
)
NO_FLUSH_ROTATING = simulate(
    NO_FLUSH,
    facts=facts(drives=(drive(rotational=True, write_cache="write through"),)),
    media=(Medium(name="sda", rpm=7200, link_bytes_per_s=600_000_000, link="SATA 6.0 Gbps"),),
)
BEHIND_CONTROLLER = replace(NO_FLUSH_ROTATING, media=ROTATING.media)
SILENT = {
    "ready_s": None,
    "unsafe_shutdowns": None,
    "media_errors": None,
    "spare_percent": None,
    "used_percent": None,
    "backup_failed": None,
    "capacitor_percent": None,
    "size_bytes": None,
    "firmware": "",
}
MUTE = campaign(health=[row(cycle, **SILENT) for cycle in range(60)])
CHECKED = campaign(health=[row(0), *(row(cycle, **SILENT) for cycle in range(1, 60))])
GONE = campaign(3, unknown=1, cause="drive", trouble="sda is not there", back=False)
RAW = campaign(health=[row(cycle, mount_s=None) for cycle in range(60)])  # the agent mounts nothing
SMALL = [row(cycle, size_bytes=1 << 39) for cycle in range(60)]
# The drive's counter rightly stays at each cut after a clean shutdown.
SHUT_DOWN = campaign(
    moments=("shutdown",), health=[row(at, unsafe_shutdowns=7) for at in range(60)], name="in-order"
)


def resumed(cuts: int, after: int) -> tuple[HealthRow, ...]:
    """The rows of a campaign that was checked again after a cycle, when the counter had risen by two more."""
    before = [row(cycle) for cycle in range(after + 1)]
    later = [row(cycle, unsafe_shutdowns=52 + cycle) for cycle in range(after + 1, cuts + 1)]
    return (*before, row(0, unsafe_shutdowns=52 + after), *later)


HALF_SHUT_DOWN = campaign(
    moments=("load", "shutdown"), health=[row(at, unsafe_shutdowns=7 + (at + 1) // 2) for at in range(60)]
)
HUNG = campaign(3, unknown=6, cause="no-verdict", name="hung")
SIZELESS = measured(accept_result(facts=facts(drives=(drive(size_bytes=0),))))
BROKEN_OFF = measured(accept_result(complete=False, stopped="Ctrl-C"), name="half.json")
SLOW = accept_result(falls_to=0.1)
# One writer's rate falls to 98 %, that of 16 to 71 %.
FALLS_WITH_MANY = accept_result(falls_to=0.98)
FALLS_WITH_MANY = replace(
    FALLS_WITH_MANY,
    cells=tuple(
        replace(one, rounds=(held_round(HELD_WRITERS, 900.0, falls_to=0.71),))
        if one.cell == HELD_WRITERS
        else one
        for one in FALLS_WITH_MANY.cells
    ),
)
RESERVED = evidence(results=[measured(accept_result(reserved_bytes=5 << 30))])
CRAMPED = evidence(results=[measured(accept_result(size_bytes=4 << 30))])
NONE = evidence(
    results=[measured(accept_result(without=(HELD_COMMIT, HELD_WRITERS, HELD_UNSYNCED, HELD_FILL)))]
)
# Its load that fills the free space had no room.
_FULL = accept_result(without=(HELD_FILL,))
_LACKING = replace(_FULL.cells[-1], cell=HELD_FILL, rounds=(), note="needs more free space than 800 MiB")
NO_ROOM = evidence(results=[measured(replace(_FULL, cells=(*_FULL.cells, _LACKING)))])


def with_load(name: str = "ssd.json", **changes: Any) -> BenchEvidence:
    """A result of `bench --accept` whose load of one committing writer has these changes."""
    result = accept_result()
    cells = tuple(
        replace(one, rounds=(replace(one.rounds[0], **changes),)) if one.cell == HELD_COMMIT else one
        for one in result.cells
    )
    return measured(replace(result, cells=cells), name=name)


def of_commits(*results: Sequence[float]) -> DriveEvidence:
    """Results whose one writer waited so many nanoseconds for each of its commits, and did nothing else."""
    return evidence(
        results=[
            with_load(
                "ssd.json" if not number else f"other-{number}.json",
                seconds=sum(times) / 1e9,
                commits=len(times),
                writes=len(times),
                commit_ns=latencies(times),
            )
            for number, times in enumerate(results)
        ]
    )


# 12 times in 120 s: 9 s at 1,000 commits a second, then one that takes 1 s.
STALLS = ([0.9e6] * 10_000 + [1e9]) * 12
FEW_STALLS = ([0.9e6] * 15_000 + [1e9]) * 8
# Each 200th commit takes a fifth longer than the limit, as an honest drive's may.
HICCUPS = ([0.45e6] * 199 + [10.8e6]) * 100
TIMELESS = with_load("timeless.json", commit_ns=NO_LATENCIES)
BRIEF = with_load("brief.json", bins=(2000, 2000))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kind with its limit, the evidence, the word that it deserves, and a part of what it says."""

    kind: str
    limit: float | None
    of: DriveEvidence
    word: DecisionWord
    says: str


def case(kind: str, limit: float | None, of: DriveEvidence, word: DecisionWord, says: str) -> Case:
    return Case(kind=kind, limit=limit, of=of, word=word, says=says)


FINE = evidence(campaign(), results=[measured()])
CASES = (
    case("clean-cuts", 59, FINE, "pass", "59 cuts without a loss: at most 5.0 % of cuts may lose data"),
    case("clean-cuts", 59, evidence(campaign(losses=1)), "refuse", "1 loss in 59 cuts, first in cycle 59 of"),
    case(
        "clean-cuts",
        59,
        evidence(campaign(shutdowns=SHUTDOWNS)),
        "refuse",
        "3 losses in 5 cuts of arm s (shutdown), first in cycle 61 of campaign shelf-3",
    ),
    case(
        "clean-cuts",
        59,
        evidence(campaign(0, shutdowns=SHUTDOWNS)),
        "refuse",
        "3 losses in 5 cuts of arm s (shutdown), first in cycle 2 of campaign shelf-3",
    ),
    case(
        "clean-cuts",
        59,
        evidence(campaign(losses=2, shutdowns=SHUTDOWNS)),
        "refuse",
        "2 losses in 59 cuts under load and 3 losses in 5 cuts of arm s (shutdown), first in cycle 58 of",
    ),
    case(
        "clean-cuts",
        59,
        evidence(campaign(losses=2, shutdowns=["kept"] * 5)),
        "refuse",
        "2 losses in 59 cuts, first in cycle 58 of",
    ),
    case("clean-cuts", 59, evidence(campaign(), runs=[RUN_LOSS]), "refuse", "first in run 00000000000000aa"),
    case("clean-cuts", 59, evidence(campaign(58)), "not shown", "58 cuts without a loss"),
    case(
        "clean-cuts",
        59,
        evidence(campaign(unknown=1)),
        "not shown",
        "59 cuts without a loss, but 1 cut of campaign shelf-3 with unknown outcome, so nothing is bounded",
    ),
    case(
        "clean-cuts",
        59,
        evidence(HUNG, campaign()),
        "not shown",
        "59 cuts without a loss, but 6 cuts of campaign hung with unknown outcome",
    ),
    case(
        "clean-cuts",
        59,
        evidence(campaign(), campaign(0, unknown=9, name="silent")),
        "not shown",
        "9 cuts of campaign silent with unknown outcome",
    ),
    case("clean-cuts", 59, evidence(campaign(cut_class="vm")), "not shown", "of class vm only"),
    case(
        "clean-cuts",
        59,
        evidence(runs=[OTHER_CACHE]),
        "not shown",
        "no loss in 99 cuts, but with the write cache off, not on: cut it as you measured it",
    ),
    case("clean-cuts", 59, evidence(campaign(), runs=[OTHER_CACHE]), "pass", "59 cuts without a loss: at"),
    case("clean-cuts", 59, evidence(campaign(), runs=[WITHHELD]), "pass", "59 cuts without a loss: at most"),
    case("clean-cuts", 59, evidence(runs=[WITHHELD]), "not shown", "lost data in run aa, but with nobarrier"),
    case(
        "clean-cuts",
        59,
        evidence(campaign(), runs=[replace(WITHHELD, withheld=False)]),
        "refuse",
        "1 loss in 9 cuts, first in run aa (with nobarrier)",
    ),
    case("clean-cuts", 59, evidence(), "not shown", "no cut of this drive is known"),
    *(
        case(
            kind,
            limit,
            NO_ROOM,
            "not shown",
            "ssd.json does not have this load: needs more free space than 800 MiB",
        )
        for kind, limit in (("filled-rate", 500), ("filled-share", 50))
    ),
    case("counted-cuts", None, FINE, "pass", "the counter rose at 59 of 59 cuts"),
    *(
        case(
            "counted-cuts",
            None,
            # It went on after a long pause, in which the drive lost its power twice more, with a new check.
            evidence(replace(campaign(cuts), rows=resumed(cuts, after), checked_after=(0, after))),
            "pass",
            f"the counter rose at {counted} of {counted} cut",
        )
        for cuts, after, counted in ((1, 1, 1), (2, 1, 2), (59, 30, 59))
    ),
    case(
        "counted-cuts",
        None,
        evidence(campaign(health=[row(cycle, unsafe_shutdowns=7) for cycle in range(60)])),
        "refuse",
        "the counter rose at 0 of 59 cuts",
    ),
    case(
        "counted-cuts",
        None,
        evidence(campaign(health=[row(cycle, unsafe_shutdowns=cycle // 2) for cycle in range(60)])),
        "not shown",
        "the counter rose at 29 of 59 cuts",
    ),
    case(
        "counted-cuts",
        None,
        evidence(campaign(health=[row(cycle, unsafe_shutdowns=2 * min(cycle, 30)) for cycle in range(60)])),
        "not shown",
        "the counter rose at 30 of 59 cuts",
    ),
    case(
        "counted-cuts",
        None,
        evidence(campaign(health=[row(cycle, **({} if cycle > 57 else SILENT)) for cycle in range(60)])),
        "not shown",
        "the counter was not read before and after 58 of 59 cuts",
    ),
    *(
        case(
            "counted-cuts",
            None,
            evidence(campaign(cut_class=cut_class, health=[row(at, unsafe_shutdowns=7) for at in range(60)])),
            "not shown",
            f"the counter rose at 0 of 59 cuts, of class {cut_class}: the drive kept its power",
        )
        for cut_class in ("os", "vm")
    ),
    case("counted-cuts", None, evidence(MUTE), "not shown", "the counter was not read before and after 59"),
    case(
        "counted-cuts",
        None,
        evidence(campaign(name="counted"), MUTE),
        "not shown",
        "the counter was not read before and after 59",
    ),
    case("counted-cuts", None, evidence(), "not shown", "no counted cut of a campaign is known"),
    case(
        "counted-cuts",
        None,
        evidence(HALF_SHUT_DOWN),
        "pass",
        "the counter rose at 30 of 30 cuts, without 29 after a clean shutdown",
    ),
    case(
        "counted-cuts",
        None,
        evidence(SHUT_DOWN),
        "not shown",
        "all 59 counted cuts came after a clean shutdown, which a drive need not count",
    ),
    case("counted-cuts", None, evidence(campaign(name="load"), SHUT_DOWN), "pass", "rose at 59 of 59 cuts"),
    case(
        "counted-cuts",
        None,
        evidence(replace(HALF_SHUT_DOWN, rows=tuple(row(at, unsafe_shutdowns=7) for at in range(60)))),
        "refuse",
        "the counter rose at 0 of 30 cuts",
    ),
    case("always-there", None, FINE, "pass", "there after each of 59 cuts"),
    case(
        "always-there",
        None,
        evidence(campaign(0, unknown=3, cause="not-a-cut")),
        "not shown",
        "no campaign has cut its power",
    ),
    case(
        "always-there",
        None,
        evidence(campaign(unknown=1, cause="no-verdict", back=False)),
        "not shown",
        "it was not seen after 1 of 60 cuts, first in cycle 60",
    ),
    case(
        "always-there",
        None,
        evidence(campaign(trouble="sda is not there")),
        "refuse",
        "sda is not there (cycle 59",
    ),
    case("always-there", None, evidence(), "not shown", "no campaign"),
    case("capacity-kept", None, FINE, "pass", "1 TiB after every cut (59)"),
    case(
        "capacity-kept",
        None,
        evidence(campaign(health=[row(0), *(row(cycle, **SILENT) for cycle in range(1, 60))])),
        "not shown",
        "reported no value after the last cut, cycle 59",
    ),
    case(
        "capacity-kept",
        None,
        evidence(campaign(unknown=1, cause="no-verdict", back=False)),
        "not shown",
        "reported no value after the last cut, cycle 60",
    ),
    case(
        "capacity-kept",
        None,
        evidence(campaign(), campaign(health=SMALL, name="later")),
        "refuse",
        "its capacity is 1 TiB in campaign shelf-3, 512 GiB in campaign later",
    ),
    case(
        "capacity-kept",
        None,
        evidence(campaign(health=SMALL), results=[measured()]),
        "refuse",
        "its capacity is 512 GiB in campaign shelf-3, 1 TiB in ssd.json",
    ),
    case("capacity-kept", None, evidence(results=[measured()]), "not shown", "no campaign"),
    case(
        "capacity-kept",
        None,
        evidence(campaign(health=rows(59, size_bytes=1 << 30))),
        "refuse",
        "came back smaller",
    ),
    case("capacity-kept", None, evidence(MUTE), "not shown", "the drive reported no value"),
    case(
        "capacity-kept",
        None,
        evidence(campaign(), results=[SIZELESS]),
        "pass",
        "1 TiB after every cut (59)",
    ),
    case("firmware-kept", None, FINE, "pass", "only 1.0"),
    case(
        "firmware-kept", None, evidence(campaign(health=rows(59, firmware="2.0"))), "refuse", "firmware 2.0"
    ),
    case("firmware-kept", None, evidence(campaign(), firmware=["9.9"]), "refuse", "firmware 1.0, 9.9"),
    # What it had before its cuts, or elsewhere, is not what it kept.
    case("firmware-kept", None, evidence(MUTE), "not shown", "the drive named no firmware"),
    case(
        "firmware-kept",
        None,
        evidence(CHECKED, results=[measured()]),
        "not shown",
        "the drive named no firmware after the last cut, cycle 59 of campaign shelf-3",
    ),
    case(
        "firmware-kept",
        None,
        evidence(GONE),
        "not shown",
        "the drive named no firmware after the last cut, cycle 4 of campaign shelf-3",
    ),
    case("firmware-kept", None, evidence(campaign(), firmware=[""]), "not shown", "some evidence names none"),
    case("firmware-kept", None, evidence(results=[measured()]), "pass", "only 1.0"),
    case("ready-within", 5, FINE, "pass", "4.4 s"),
    case("ready-within", 5, evidence(campaign(health=rows(59, ready_s=31.0))), "refuse", "31 s"),
    case("ready-within", 5, evidence(MUTE), "not shown", "reported no value in any campaign"),
    case("ready-within", 5, evidence(CHECKED), "not shown", "reported no value after the last cut"),
    case("repairs", 0, FINE, "pass", "0 cycles"),
    case("repairs", 0, evidence(campaign(health=rows(59, repaired=True))), "refuse", "1 cycle"),
    case("repairs", 0, evidence(), "not shown", "no campaign"),
    case("repairs", 0, evidence(RAW), "not shown", "the agent mounted no file system"),
    case("repairs", 0, evidence(campaign(), RAW), "not shown", "the agent mounted no file system"),
    case(
        "repairs",
        0,
        evidence(campaign(health=rows(59, mount_s=None))),
        "not shown",
        "the agent mounted no file system after the last cut, cycle 59 of campaign shelf-3",
    ),
    case(
        "repairs",
        0,
        evidence(campaign(health=[row(0), row(1, repaired=True), row(2, mount_s=None)], cuts=2)),
        "refuse",
        "1 cycle",
    ),
    case("protection-works", None, FINE, "pass", "reports no failure of it after every cut (59)"),
    case("protection-works", None, evidence(CHECKED), "not shown", "reported no value after the last cut"),
    case(
        "protection-works",
        None,
        evidence(campaign(health=[row(cycle, capacitor_percent=0) for cycle in range(60)])),
        "refuse",
        "no working capacitors",
    ),
    case(
        "protection-works",
        None,
        evidence(campaign(health=rows(59, backup_failed=True))),
        "refuse",
        "is broken",
    ),
    case("protection-works", None, evidence(MUTE), "not shown", "the drive reported no value"),
    case("capacitors", 80, FINE, "pass", "98 %"),
    case("capacitors", 80, evidence(campaign(health=rows(59, capacitor_percent=12))), "refuse", "12 %"),
    case("capacitors", 80, evidence(MUTE), "not shown", "reported no value"),
    case("media-errors", 0, FINE, "pass", "0 added, last value 3"),
    case(
        "media-errors",
        0,
        evidence(campaign(health=rows(59, media_errors=5))),
        "refuse",
        "2 added, last value 5",
    ),
    case("media-errors", 0, evidence(MUTE), "not shown", "no campaign could read"),
    case(
        "media-errors",
        0,
        evidence(campaign(health=[row(cycle, media_errors=40 * (cycle == 30)) for cycle in range(60)])),
        "refuse",
        "40 added, last value 0",
    ),
    case(
        "media-errors",
        0,
        evidence(
            campaign(
                health=[row(cycle, media_errors=900) for cycle in range(60)],
                name="later",
                began="2026-02-02T00:00:00Z",
            ),
            campaign(),
        ),
        "refuse",
        "897 added, last value 900",
    ),
    case(
        "media-errors",
        0,
        evidence(
            campaign(
                health=[row(0, media_errors=8), *(row(at, media_errors=5 * (at > 49)) for at in range(1, 60))]
            )
        ),
        "refuse",
        "5 added, last value 5",
    ),
    case(
        "media-errors",
        0,
        evidence(campaign(health=[row(cycle, media_errors=60 - cycle) for cycle in range(60)])),
        "pass",
        "0 added, last value 1",
    ),
    case(
        "media-errors",
        3,
        evidence(campaign(health=[row(cycle, media_errors=cycle % 2) for cycle in range(60)])),
        "refuse",
        "30 added, last value 1",
    ),
    case("media-errors", 0, evidence(CHECKED), "not shown", "reported no value after the last cut"),
    case(
        "media-errors",
        0,
        evidence(campaign(health=[row(cycle, **({} if cycle > 57 else SILENT)) for cycle in range(60)])),
        "not shown",
        "they were not read before the first cut",
    ),
    case("spare", 90, FINE, "pass", "100 %"),
    case("spare", 90, evidence(campaign(health=rows(59, spare_percent=10))), "refuse", "10 %"),
    case("spare", 90, evidence(MUTE), "not shown", "reported no value"),
    case("used", 50, FINE, "pass", "7 %"),
    case("used", 50, evidence(campaign(health=rows(59, used_percent=120))), "refuse", "120 %"),
    case("used", 50, evidence(MUTE), "not shown", "reported no value"),
    case("plausible", None, FINE, "pass", "looks honest"),
    case("plausible", None, evidence(results=[measured(simulate(NO_FLUSH))]), "refuse", "suspicious: "),
    case(
        "plausible", None, evidence(results=[measured(simulate(PLP))]), "not shown", "the flush does no work"
    ),
    case(
        "plausible",
        None,
        evidence(campaign(), results=[measured(simulate(PLP))]),
        "pass",
        "59 clean cuts settle it",
    ),
    case(
        "plausible",
        None,
        evidence(runs=[OTHER_CACHE], results=[measured(simulate(PLP))]),
        "not shown",
        "does no work",
    ),
    case(
        "plausible",
        None,
        evidence(campaign(5), results=[measured(simulate(PLP))]),
        "not shown",
        "does no work",
    ),
    case(
        "plausible",
        None,
        evidence(HUNG, campaign(), results=[measured(simulate(PLP))]),
        "not shown",
        "does no work",
    ),
    case(
        "plausible",
        None,
        evidence(campaign(), runs=[RUN_LOSS], results=[measured(simulate(PLP))]),
        "not shown",
        "does no work",
    ),
    case("plausible", None, evidence(results=[measured(ROTATING)]), "refuse", "suspicious: commits came"),
    case(
        "plausible",
        None,
        evidence(campaign(), runs=[RUN_LOSS], results=[measured(ROTATING)]),
        "refuse",
        "suspicious: commits came",
    ),
    case(
        "plausible",
        None,
        evidence(campaign(), results=[measured(ROTATING)]),
        "pass",
        "suspicious by its times (faster than the media); 59 clean cuts settle it",
    ),
    case(
        "plausible",
        None,
        evidence(campaign(), results=[measured(simulate(NO_FLUSH))]),
        "refuse",
        "suspicious: commits were acknowledged and no flush",
    ),
    case(
        "plausible", None, evidence(results=[measured(NO_FLUSH_ROTATING)]), "refuse", "faster than the plat"
    ),
    case(
        "plausible",
        None,
        evidence(campaign(), results=[measured(NO_FLUSH_ROTATING)]),
        "pass",
        "suspicious by its times (faster than the media); 59 clean cuts settle it",
    ),
    case(
        "plausible",
        None,
        evidence(results=[measured(BEHIND_CONTROLLER)]),
        "not shown",
        "a controller's cache may answer, which a battery or flash may protect; only a power cut tells",
    ),
    case(
        "plausible",
        None,
        evidence(campaign(), results=[measured(BEHIND_CONTROLLER)]),
        "pass",
        "times show nothing; 59 clean cuts settle it",
    ),
    case("plausible", None, evidence(campaign()), "not shown", "no result"),
    case(
        "plausible",
        None,
        evidence(campaign(), results=[BROKEN_OFF]),
        "not shown",
        "looks honest; half.json was broken off before its end",
    ),
    case("commit-p99", 1, FINE, "pass", "0.45 ms"),
    case("commit-p99", 0.1, FINE, "refuse", "0.45 ms"),
    case("commit-p99", 1, NONE, "not shown", "no result of bench --accept"),
    case("commit-rate", 1000, FINE, "pass", "2,000 commits/s, 8.19 MB/s"),
    case("commit-rate", 1000, evidence(results=[measured(SLOW)]), "refuse", "200 commits/s"),
    case("commit-rate", 1000, NONE, "not shown", "no result of bench --accept"),
    case("held-share", 80, FINE, "pass", "100 % (1 writer)"),
    case("held-share", 80, evidence(results=[measured(SLOW)]), "refuse", "10 % (1 writer)"),
    case("held-share", 70, evidence(results=[measured(FALLS_WITH_MANY)]), "pass", "71 % (16 writers)"),
    case("held-share", 99.5, evidence(results=[measured(FALLS_WITH_MANY)]), "refuse", "71 % (16 writers)"),
    case("held-share", 80, NONE, "not shown", "no result of bench --accept"),
    case("held-for", 30, FINE, "pass", "each held for 30 s"),
    case("held-for", 31, FINE, "not shown", "each held for 30 s: --minutes 4 hold long enough"),
    case("held-for", 300, FINE, "not shown", "each held for 30 s: --minutes 22 hold long enough"),
    case("held-for", 86_400, FINE, "not shown", "each held for 30 s: no --minutes hold so long"),
    case(
        "held-for",
        30,
        evidence(results=[BROKEN_OFF]),
        "not shown",
        "each held for 30 s; half.json was broken off before its end",
    ),
    case("held-for", 31, evidence(results=[BROKEN_OFF, measured()]), "not shown", "30 s: --minutes 4 hold"),
    case("held-for", 30, NONE, "not shown", "no result of bench --accept"),
    case("commit-rate", 1, evidence(results=[BROKEN_OFF]), "not shown", "half.json was broken off"),
    case("commit-rate", 1, evidence(results=[measured(), BROKEN_OFF]), "not shown", "half.json was broken"),
    case("commit-rate", 9999, evidence(results=[BROKEN_OFF]), "refuse", "2,000 commits/s"),
    case("filled-rate", 1, evidence(results=[BROKEN_OFF]), "not shown", "half.json was broken off"),
    case(
        "filled-share",
        1,
        evidence(results=[BROKEN_OFF]),
        "not shown",
        "(76.7%), 1.6 times over; half.json was broken off before its end",
    ),
    case(
        "commit-p99",
        10,
        evidence(results=[measured(accept_result(rates={HELD_COMMIT.name: 89.0}))]),
        "refuse",
        "10.1 ms, longest 10.1 ms",
    ),
    # The bucket of the percentile begins below the limit, and these commits took 9.97 ms.
    case(
        "commit-p99",
        10,
        of_commits([9.97e6] * 12_000 + [14e6] * 60),
        "not shown",
        "between 9.96 and 10.03 ms, longest 14 ms",
    ),
    case("commit-p99", 9.9, of_commits([9.97e6] * 12_000), "refuse", "9.97 ms"),
    case("commit-p99", 10, of_commits(STALLS), "refuse", "0.901 ms, longest 1 s, 9.9 % of the time beyond"),
    case("commit-p99", 10, of_commits(FEW_STALLS), "not shown", "beyond the limit, by only 8 commits"),
    case(
        "commit-p99", 10, of_commits(HICCUPS), "pass", "longest 10.8 ms, 0.75 % of the time beyond the limit"
    ),
    case("commit-p99", 10, of_commits([10e6] * 12_000), "pass", "10 ms, longest 10 ms"),
    case(
        "commit-p99",
        1,
        of_commits([0.1e6] * 900),
        "not shown",
        "no 99th percentile of 900 commits, longest",
    ),
    case("commit-p99", 10, of_commits([133e6] * 900), "refuse", "92 % of the time beyond the limit"),
    case(
        "commit-p99", 10, of_commits([133e6] * 900, [0.45e6] * 200_000), "refuse", "92 % of the time beyond"
    ),
    case(
        "commit-p99",
        10,
        of_commits([0.1e6] * 900, [0.45e6] * 200_000),
        "not shown",
        "no 99th percentile of 900",
    ),
    case("commit-p99", 10, of_commits([0.45e6] * 200_000, STALLS), "refuse", "9.9 % of the time beyond"),
    case(
        "commit-p99",
        10,
        evidence(results=[TIMELESS]),
        "not shown",
        "timeless.json has no times of its commits",
    ),
    case(
        "commit-p99",
        10,
        evidence(results=[measured(), TIMELESS]),
        "not shown",
        "timeless.json has no times of its commits",
    ),
    case(
        "commit-rate", 1, evidence(results=[measured(), BRIEF]), "not shown", "the load of brief.json was too"
    ),
    case("commit-rate", 9999, evidence(results=[measured(), BRIEF]), "refuse", "2,000 commits/s"),
    case("commit-p99", 1, evidence(results=[BROKEN_OFF]), "not shown", "half.json was broken off"),
    case("ready-within", 4.4, evidence(campaign(health=rows(59, ready_s=4.4008))), "refuse", "4.401 s"),
    case("ready-within", 1000, evidence(campaign(health=rows(59, ready_s=1234.0))), "refuse", "1,234 s"),
    case("unsynced-rate", 100, FINE, "pass", "262 MB/s"),
    case("unsynced-rate", 300, FINE, "refuse", "262 MB/s"),
    case("unsynced-rate", 100, NONE, "not shown", "no result of bench --accept"),
    case("filled-rate", 100, FINE, "pass", "524 MB/s"),
    case("filled-rate", 100, evidence(results=[measured(SLOW)]), "refuse", "52.4 MB/s"),
    case(
        "filled-rate",
        100,
        evidence(results=[measured(accept_result(free_bytes=1 << 40))]),
        "not shown",
        "524 MB/s; 14.65 GiB of 1 TiB free space written (1.4%) in 30 s",
    ),
    case("filled-rate", 100, NONE, "not shown", "no result of bench --accept"),
    case("filled-share", 50, FINE, "pass", "9.212 GiB of 12 GiB free space written (76.7%), 1.6 times over"),
    case("filled-share", 80, FINE, "not shown", "(76.7%), 1.6 times over"),
    case(
        "filled-share", 50, CRAMPED, "not shown", "(28.3%), 4.3 times over; the files of the other cells take"
    ),
    case("filled-rate", 100, CRAMPED, "not shown", "524 MB/s; 3.4 GiB of 12 GiB"),
    case("filled-rate", 100, RESERVED, "not shown", "the file system keeps 5 GiB of it from programs"),
    case("filled-share", 50, RESERVED, "not shown", "5.212 GiB of 12 GiB free space written (43.4%)"),
    case(
        "filled-share",
        50,
        evidence(results=[measured(accept_result(free_bytes=1 << 40))]),
        "not shown",
        "until the time was over: at this rate --minutes 52 fill half",
    ),
    case("filled-share", 50, NONE, "not shown", "no result of bench --accept"),
)


def _profile(*criteria: Criterion) -> Profile:
    return Profile(name="p", title="P", about="", criteria=criteria)


def _criterion(kind: str, limit: float | None, *, required: bool = True) -> Criterion:
    return Criterion(kind=kind, limit=limit, cut_class="power", required=required, reason="Because.")


@pytest.mark.parametrize("one", CASES, ids=lambda one: f"{one.kind}-{one.word}".replace(" ", "-"))
def test_a_kind_answers_from_evidence(one: Case) -> None:
    """The word, the figure behind it, and, unless nothing is known, where the figure is from."""
    decision = decide_on(_profile(_criterion(one.kind, one.limit)), one.of)
    (line,) = decision.lines
    assert (line.word, decision.word) == (one.word, one.word), line
    assert one.says in line.figure
    assert line.source or line.word == "not shown"


def test_every_kind_is_shown_with_every_word_that_it_has() -> None:
    """No kind is left out; what more time would show never refuses, since it blames no drive."""
    shown = {(one.kind, one.word) for one in CASES}
    words: tuple[DecisionWord, ...] = ("pass", "refuse", "not shown")
    missing = {(kind, word) for kind in KINDS for word in words} - shown
    assert missing == {("filled-share", "refuse"), ("held-for", "refuse")}


@pytest.mark.parametrize(
    ("kind", "limit", "value", "text"),
    [
        ("commit-rate", 500, 499.6, "499.6"),
        ("commit-rate", 500, 500.4, "500"),
        ("commit-rate", 1, 0.4, "0.4"),
        ("held-share", 70, 69.96, "69.96"),
        ("held-for", 600, 599.9996, "599.9996"),
        ("commit-p99", 10, 10.000000004, "10.000000004"),
        ("used", 80, 79.99, "80"),
    ],
)
def test_a_figure_does_not_contradict_its_word(kind: str, limit: float, value: float, text: str) -> None:
    """It has as many digits as it takes to see that the limit is missed, and no more than usual if it is
    kept."""
    assert value_text(_criterion(kind, limit), value) == text


@pytest.mark.parametrize(
    ("kind", "limit", "text"),
    [
        ("commit-rate", 1_234_567, "at least 1,234,567 commits/s"),
        ("commit-rate", 1_000_000.0, "at least 1,000,000 commits/s"),
        ("commit-rate", 2048.5, "at least 2,048.5 commits/s"),
        ("commit-p99", 0.0001, "at most 0.0001 ms"),
        ("clean-cuts", 59.0, "at least 59 cuts of class power"),
    ],
)
def test_a_limit_has_all_its_digits(kind: str, limit: float, text: str) -> None:
    """A rounded one could lie on the other side of the figure beside it."""
    assert limit_text(_criterion(kind, limit)) == text


def test_a_drive_that_names_no_firmware_has_not_shown_it() -> None:
    """Virtual drives name none."""
    of = evidence(MUTE)
    nameless = tuple(
        replace(one, drives=tuple(replace(each, firmware="") for each in one.drives)) for one in of.facts
    )
    (line,) = decide_on(_profile(_criterion("firmware-kept", None)), replace(of, facts=nameless)).lines
    assert (line.word, line.figure) == ("not shown", "the drive names no firmware")


@pytest.mark.parametrize(
    ("firmwares", "word", "figure"),
    [
        (("", ""), "not shown", "the drive names no firmware"),
        (("1.0", ""), "not shown", "the drive names no firmware"),
        (("1.0", "1.1"), "pass", "only 1.0 + 1.1"),
    ],
)
def test_each_of_several_drives_must_name_its_firmware(
    firmwares: tuple[str, str], word: str, figure: str
) -> None:
    """A mirror of drives without a name of it, or with one, has not shown it, by its facts or its rows."""
    mirror = facts(drives=tuple(drive(firmware=one) for one in firmwares))
    of = evidence(campaign(health=[row(cycle, firmware=" + ".join(firmwares)) for cycle in range(60)]))
    (line,) = decide_on(_profile(_criterion("firmware-kept", None)), replace(of, facts=(mirror,))).lines
    assert (line.word, line.figure) == (word, figure)


def test_drives_in_another_order_have_the_same_firmware() -> None:
    """After a boot the members of a mirror may have each other's names: in rows of health, and in facts."""
    one, two = (("S-1", "1.0"), ("S-2", "1.1"))
    orders = ((one, two), (two, one))
    mirrors = tuple(facts(drives=tuple(drive(serial=s, firmware=f) for s, f in each)) for each in orders)
    health = [row(cycle, firmware=" + ".join(f for _, f in orders[cycle % 2])) for cycle in range(60)]
    of = replace(evidence(campaign(health=health)), facts=mirrors)
    (line,) = decide_on(_profile(_criterion("firmware-kept", None)), of).lines
    assert (line.word, line.figure) == ("pass", "only 1.0 + 1.1")


def test_a_class_that_is_weaker_may_be_asked_for() -> None:
    """A criterion may ask for cuts of class vm; cuts of class power count too, cuts of class os do not."""
    asked = replace(_criterion("clean-cuts", 59), cut_class="vm")
    for cut_class, word in (("power", "pass"), ("vm", "pass"), ("os", "not shown")):
        (line,) = decide_on(_profile(asked), evidence(campaign(cut_class=cut_class))).lines
        assert line.word == word
        assert line.limit == "at least 59 cuts of class vm"


def test_of_several_results_the_worst_counts() -> None:
    """However many are evidence, no good one hides a bad one."""
    of = evidence(results=[measured(name="fast.json"), measured(SLOW, name="slow.json")])
    (line,) = decide_on(_profile(_criterion("commit-rate", 1000)), of).lines
    assert (line.word, line.source) == ("refuse", "slow.json")


def test_the_whole_passes_only_if_all_required_lines_pass() -> None:
    """One refusal refuses; one gap leaves it open; optional ones decide nothing."""
    passes, refuses = _criterion("clean-cuts", 59), _criterion("media-errors", 0)
    open_ = _criterion("commit-rate", 1)
    of = evidence(campaign(health=rows(59, media_errors=9)))
    optional = tuple(replace(one, required=False) for one in (refuses, open_))
    assert decide_on(_profile(passes, *optional), of).word == "pass"
    assert decide_on(_profile(passes, open_), of).word == "not shown"
    both = decide_on(_profile(passes, open_, refuses), of)
    assert both.word == "refuse" and both.why == "media-errors: 6 added, last value 9"
    assert decide_on(_profile(*optional), of).word == "not shown"
    assert decided_of_all(["pass", "not shown"]) == "not shown"
    assert decided_of_all(["pass", "not shown", "refuse"]) == "refuse"


def test_what_is_not_proven_is_said() -> None:
    """The bound that the cuts leave, the power that was not cut, and what was not measured."""
    said = " ".join(
        decide_on(_profile(_criterion("clean-cuts", 59)), evidence(campaign(cut_class="vm"))).not_proven
    )
    for words in (
        "59 cuts of class vm",
        "up to 5.0 % of such cuts",
        "provider's own power",
        "no result of the benchmark",
    ):
        assert words in said
    of = evidence(campaign(), campaign(300, cut_class="os", name="resets"))
    (said, *_) = decide_on(_profile(_criterion("clean-cuts", 59)), of).not_proven
    assert "59 cuts of class power without a loss allow a loss in up to 5.0 %" in said
    said = " ".join(decide_on(_profile(_criterion("clean-cuts", 59)), FINE).not_proven)
    assert "provider" not in said and HONEST is not PLP
    (said, *_) = decide_on(_profile(_criterion("clean-cuts", 59)), evidence(runs=[OTHER_CACHE])).not_proven
    assert "no series of cuts without a loss bounds it" in said


def test_a_drive_that_cannot_be_looked_for_is_said() -> None:
    """Other cuts of a drive without a serial of its own cannot be found. Named evidence may pass, and the
    sheet states this limit."""
    asked = _profile(_criterion("clean-cuts", 59))
    numbered = replace(FINE, facts=(facts(drives=(drive(serial="QM00001"),)),))
    decision = decide_on(asked, numbered)
    said = (
        "That no other cut of it lost data: sda has no serial of its own, so its cuts cannot be found on the"
        " server."
    )
    assert decision.word == "pass" and said in decision.not_proven
    assert not any("cannot be found" in one for one in decide_on(asked, FINE).not_proven)


def test_what_cannot_be_read_is_one_sentence() -> None:
    """A server with many campaigns of a later release fills no page: the decision folds what it does not
    prove, and the evidence keeps each of them."""
    unread_ones = [
        *(unread(f"campaign shelf-{number}") for number in range(14)),
        unread("run 00000000000000aa"),
        "the server was not searched to the end: EOF",
        *(f"stored result {number:012x} cannot be read by this release" for number in range(2)),
    ]
    assert folded(unread_ones) == (
        "14 campaigns cannot be read, and what they say does not count: shelf-0, shelf-1, shelf-2 and 11"
        " more",
        unread_ones[14],
        unread_ones[15],
        "2 stored results cannot be read by this release: 000000000000, 000000000001",
    )
    decision = decide_on(_profile(_criterion("clean-cuts", 59)), replace(FINE, unfinished=tuple(unread_ones)))
    assert sum("cannot be read" in one for one in decision.not_proven) == 3
    assert len(decision.evidence.unfinished) == 18


def test_many_campaigns_are_not_all_named_beside_a_figure() -> None:
    """They are in the evidence."""
    asked = Criterion(kind="always-there", limit=None, cut_class="power", required=True, reason="Because.")
    of = evidence(*(campaign(2, name=f"round-{number}") for number in range(9)))
    found = KINDS["always-there"].look(of, asked)
    assert found.source == "campaign round-0, campaign round-1, campaign round-2, campaign round-3 and 5 more"


def test_a_result_that_was_broken_off_passes_nothing() -> None:
    """A drive that failed under the benchmark is not accepted, also by a profile that asks for cuts alone; a
    refusal stays one."""
    why = "/srv: 4k-random-fdatasync: I/O error of the target\n\u202e"
    failed = measured(accept_result(complete=False, stopped=why), name="half.json")
    of = evidence(campaign(), results=[failed])
    told = "half.json was broken off before its end: /srv: 4k-random-fdatasync: I/O error of the target"
    decision = decide_on(_profile(_criterion("clean-cuts", 59)), of)
    assert decision.word == "not shown" and decision.why.startswith(f"what was found passes, but {told}")
    assert decision.why.isprintable()
    (said,) = (one for one in decision.not_proven if "further on" in one)
    assert said.startswith(f"What the benchmark would have shown further on: {told}")
    lost = evidence(campaign(losses=1), results=[failed])
    assert decide_on(_profile(_criterion("clean-cuts", 59)), lost).word == "refuse"


def test_a_search_that_was_broken_off_passes_nothing() -> None:
    """An unfinished search for evidence cannot pass: decision, criterion line and page name the reason. A
    loss that was found still refuses."""
    asked, missing = _profile(_criterion("clean-cuts", 59)), "the server was not searched to the end: EOF"
    decision = decide_on(asked, replace(FINE, unfinished=(missing,)))
    assert (decision.word, decision.why) == ("not shown", f"what was found passes, but {missing}")
    assert any(missing in one for one in decision.not_proven)
    (line,) = decide_on(asked, replace(evidence(), unfinished=(missing,))).lines
    assert line.figure == f"no cut of this drive is known, but {missing}"
    assert decide_on(asked, replace(evidence(campaign(losses=1)), unfinished=(missing,))).word == "refuse"


def test_a_loss_of_a_client_that_does_not_count_leaves_the_cuts_open() -> None:
    """A loss in runs that do not count keeps the criterion open until the user says whose runs count. A loss
    that counts refuses the drive. Plausibility is not affected."""
    asked, said = _profile(_criterion("clean-cuts", 59)), "1 loss in runs of lab that are left out"
    open_ = replace(evidence(campaign()), disputed=said)
    decision = decide_on(asked, open_)
    assert (decision.word, decision.why) == ("not shown", f"clean-cuts: 59 cuts without a loss, but {said}")
    assert decision.not_proven[0].endswith(f": 59 cuts of class power without a loss, but {said}.")
    lost = replace(evidence(campaign(losses=1)), disputed=said)
    assert decide_on(asked, lost).word == "refuse"
    (plausible,) = _profile(_criterion("plausible", None)).criteria
    words = {}
    for name, result in (("controller", BEHIND_CONTROLLER), ("rotating", ROTATING)):
        of = replace(evidence(campaign(), results=[measured(result)]), disputed=said)
        words[name] = KINDS["plausible"].look(of, plausible).word
    assert words == {"controller": "not shown", "rotating": "pass"}


def test_a_campaign_that_only_speaks_against_the_drive_shows_nothing_else() -> None:
    """A campaign on an older firmware counts only against the drive, here by its media errors. It does not
    affect other criteria."""
    old = campaign(
        3,
        name="old",
        began="2025-01-02T00:00:00Z",
        health=[row(at, firmware="0.9", unsafe_shutdowns=None, media_errors=at) for at in range(4)],
    )
    known = replace(evidence(campaign()), against=(old,))
    asked = {
        kind: Criterion(kind=kind, limit=limit, cut_class="power", required=True, reason="Because.")
        for kind, limit in (("firmware-kept", None), ("counted-cuts", None), ("media-errors", 0.0))
    }
    words = {kind: KINDS[kind].look(known, one).word for kind, one in asked.items()}
    assert words == {"firmware-kept": "pass", "counted-cuts": "pass", "media-errors": "refuse"}
    assert known.subject.firmware == "1.0"

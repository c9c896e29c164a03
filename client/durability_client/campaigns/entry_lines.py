"""The entries of a campaign's log as lines for people."""

from __future__ import annotations

from functools import singledispatch

from durability.campaign.log_entries import (
    Abandoned,
    Checked,
    CutDue,
    CycleBegan,
    CycleEnded,
    DriveLeft,
    DriveReported,
    Ended,
    Entry,
    Happening,
    Judged,
    JudgedLate,
    MachineSeen,
    NotBack,
    Paused,
    PowerAnswered,
    PowerAsked,
    PowerFailed,
    StillThere,
    StrangerHeard,
    WritersHeld,
)

_S = 1_000_000_000


def entry_line(entry: Entry) -> str:
    """An entry as one line. It may contain text from other programs, so the caller must make it plain."""
    return f"{entry.wall}  {_text(entry.happening)}"


@singledispatch
def _text(happening: Happening) -> str:
    return happening.kind.replace("-", " ")


@_text.register
def _(began: CycleBegan) -> str:
    return f"cycle {began.cycle}: {began.arm}" if began.cycle else "the check begins"


@_text.register
def _(seen: MachineSeen) -> str:
    return f"{seen.machine} answers, {seen.uptime_s:.0f} s after boot"


@_text.register
def _(stranger: StrangerHeard) -> str:
    return f"{stranger.machine}: not heard: {stranger.text}"


@_text.register
def _(report: DriveReported) -> str:
    said = report.status
    run = f" (run {said.run})" if said.run else ""
    return f"{said.drive}: {report.what}: {said.state}{run}{_because(said.text)}"


@_text.register
def _(due: CutDue) -> str:
    return f"every run that can be armed is armed; cut in {due.in_s:.1f} s"


@_text.register
def _(held: WritersHeld) -> str:
    # Older releases did not wait until the credit was used up, so writers may still have written.
    return f"writers get no credit; cut in {held.in_s:.1f} s" if held.in_s else "writers get no more credit"


@_text.register
def _(asked: PowerAsked) -> str:
    return f"switch {asked.switch + 1}: asked for {asked.operation}"


@_text.register
def _(answered: PowerAnswered) -> str:
    took_s = (answered.ended_ns - answered.began_ns) / _S
    said = f"{answered.outcome} after {took_s:.2f} s{_because(answered.text)}"
    return f"switch {answered.switch + 1}: {answered.operation}: {said}"


@_text.register
def _(failed: PowerFailed) -> str:
    return f"the switches failed{_because(failed.reason)}"


@_text.register
def _(missing: NotBack) -> str:
    return f"{missing.machine} did not come back"


@_text.register(StillThere)
@_text.register(Abandoned)
def _(said: StillThere | Abandoned) -> str:
    return said.text


@_text.register
def _(judged: Judged) -> str:
    return f"{judged.drive}: verdict {judged.verdict or 'none'} on run {judged.run}"


@_text.register
def _(late: JudgedLate) -> str:
    return f"cycle {late.cycle}: {_text(late.judged)}, after its cycle"


@_text.register
def _(checked: Checked) -> str:
    return f"check: {'; '.join(checked.problems or ('passed', *checked.notes))}"


@_text.register
def _(over: CycleEnded) -> str:
    said = ", ".join(f"{mine.drive}: {mine.word}" for mine in over.drives)
    return f"cycle {over.cycle} is over: {said}" if over.cycle else "the check is over"


@_text.register
def _(left: DriveLeft) -> str:
    return f"{left.drive} is no longer tested{_because(left.reason)}"


@_text.register
def _(ended: Ended) -> str:
    return f"over{_because(ended.reason)}"


@_text.register
def _(paused: Paused) -> str:
    return f"paused{_because(paused.reason)}"


def _because(text: str) -> str:
    return f": {text}" if text else ""

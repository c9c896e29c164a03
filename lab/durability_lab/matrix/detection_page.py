"""docs/explanation/detection.md: the results of a long matrix, with the command that made it.

This module is pure except for the date. The page is complete: every cut counts in one of the tables, and
every cut that was not caught is listed with its reason. docs/explanation/limits.md explains the figures.
"""

from __future__ import annotations

import datetime
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import durability
from durability.evidence.strength import interval
from durability.units import counted
from durability_lab.matrix import detection_curves, matrix_report
from durability_lab.matrix.graded_cut import GradedCut
from durability_lab.matrix.matrix_cells import Curve, MatrixCell
from durability_lab.matrix.matrix_report import MatrixRow, graded, share
from durability_lab.simulated_rig.scenario import Scenario
from durability_lab.support.loads import Load

_TITLE = "# Detection: the tester against every drive of the lab"
_EXAMPLES = 3


def is_page(head: bytes) -> bool:
    """Whether a file that begins with `head` is a page of this kind."""
    return head.startswith(_TITLE.encode())


def markdown(
    cells: Sequence[MatrixCell], graded_cuts: Sequence[GradedCut], *, seed: int, options: str, again: str
) -> str:
    """The page as Markdown. `options`: the options that chose the cells. `again`: the options that choose one
    of these cells, called CELL."""
    sections = [
        _head(graded_cuts, seed=seed, options=options, again=again),
        _honest(cells, graded_cuts),
        _liars(cells, graded_cuts),
        _loads(cells, graded_cuts),
        _classes(graded_cuts),
        _early_ack(cells, graded_cuts),
        _flush_skipped(cells, graded_cuts),
        _uncaught(graded_cuts),
        _wrong(graded_cuts),
        _misses(cells, graded_cuts),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def _head(graded_cuts: Sequence[GradedCut], *, seed: int, options: str, again: str) -> list[str]:
    count = matrix_report.totals(graded_cuts)
    words = " ".join(part for part in ("durability lab matrix", options, f"--seed {seed}") if part)
    today = datetime.datetime.now(datetime.UTC).date()
    return [
        _TITLE,
        "",
        f"This page is generated: do not edit it. Version {durability.__version__} made it on {today}, with",
        "",
        f"    {words} --state FILE --markdown docs/explanation/detection.md",
        "",
        _paragraph(f"""
            {counted(len(graded_cuts), "power cut")}. Of {count["honest"]:,} cuts of honest drives,
            {count["false_alarms"]} were called a loss and {count["undecided"]} were undecided. Of
            {count["liars"]:,} cuts of lying drives, {count["caught"]:,} were caught and
            {count["missed"]:,} were not: in {count["missed_kept"]:,} of these the drive kept every promise,
            in {count["missed"] - count["missed_kept"]:,} it did not. Each cut that was not caught is listed
            below with its reason and seed. Verdicts and findings were compared with the promises that the
            drive made and broke. {counted(count["wrong"], "cut")} had a wrong result.
        """),
        "",
        _paragraph(f"""
            [lab.md](lab.md) explains rigs, loads and drives. [limits.md](limits.md) explains what the tester
            cannot see, and what to do about it. `durability lab matrix {again} --seed {seed} --cut NUMBER`
            repeats any cut. On rig A the result is the same; on the other rigs it also depends on the
            kernel's scheduling. [Random histories](random-histories.md) has results of more than one cut.
        """),
    ]


def _honest(cells: Sequence[MatrixCell], graded_cuts: Sequence[GradedCut]) -> list[str]:
    every = [row for row in matrix_report.rows(cells, graded_cuts, by_cell=False) if row.honest]
    lines = (
        (
            row.rig.upper(),
            f"`{row.drive}`",
            f"{len(row.graded_cuts):,}",
            f"{row.graded('right'):,}",
            str(row.graded("false alarm")),
            str(row.graded("undecided") + row.graded("failed")),
        )
        for row in every
    )
    return _section(
        "Honest drives",
        "*Undecided* counts inconclusive verdicts and cuts that could not be made.",
        "Rig | Drive | Cuts | Durable | False alarms | Undecided",
        lines,
    )


def _liars(cells: Sequence[MatrixCell], graded_cuts: Sequence[GradedCut]) -> list[str]:
    every = [row for row in matrix_report.rows(cells, graded_cuts, by_cell=False) if not row.honest]
    return _section(
        "Lying drives",
        """
            *Broke*: cuts after which a promise of the drive was broken, even outside the run's data; unknown
            for nbdkit's filter. *Caught*: cuts with the verdict that the drive deserves, which is loss, or
            inconclusive for `hanging` and `dead`; as a share of all cuts and of the cuts that broke a
            promise. *Smallest loss*: the fewest places of a loss, and the fewest operations and the shortest
            time before the cut that a loss reached back. Each of the three is the minimum over all cuts.
            *Compared*: places compared with the truth one by one, the base of precision and recall. *Not
            compared*: other claimed places. Places cannot be compared on rig C, under nbdkit's filter, and
            if the target can no longer be read.
        """,
        "Rig | Drive | Cuts | Broke | Caught | Of broke | Smallest loss | Compared | Not compared | Precision"
        " | Recall",
        map(_liar, every),
    )


def _liar(row: MatrixRow) -> tuple[str, ...]:
    return (
        row.rig.upper(),
        f"`{row.drive}`",
        str(len(row.graded_cuts)),
        "" if row.broke is None else str(row.broke),
        _of(row.graded("right"), len(row.graded_cuts)),
        _of(row.caught_of_broke, row.broke) if row.broke else "",
        matrix_report.smallest(row),
        f"{row.agreement.compared:,}",
        f"{row.agreement.unjudged:,}",
        share(row.agreement.precision),
        share(row.agreement.recall),
    )


def _of(part: int, whole: int) -> str:
    return f"{part}/{whole} ({share(part / whole)})"


def _loads(cells: Sequence[MatrixCell], graded_cuts: Iterable[GradedCut]) -> list[str]:
    """The results of each workload on each file system, on the rigs with a kernel."""
    places = {
        cell.name: (cell.rig.upper(), cell.load.file_system or "raw device", cell.load.workload)
        for cell in cells
        if isinstance(cell.load, Load)
    }
    grouped: dict[tuple[str, str, str], list[GradedCut]] = {
        place: [] for place in sorted(places.values(), key=lambda place: place[:2])
    }
    for graded_cut in graded_cuts:
        if graded_cut.cell in places:
            grouped[places[graded_cut.cell]].append(graded_cut)
    if not grouped:
        return []
    lines = (
        (rig, file_system, f"`{workload}`", *_load(members))
        for (rig, file_system, workload), members in grouped.items()
        if members
    )
    return _section(
        "File systems and workloads",
        """
            Rigs B and C have a real kernel. The table has each workload on each file system, with one writer
            or several, groups, `fdatasync` or `dsync`. It counts the durable cuts of honest drives. Of lying
            drives it counts the cuts that were caught, the cuts that broke a promise, and all cuts.
            `fua-ignored` counts as honest here. What nbdkit's filter broke is unknown; it counts as a lying
            drive that broke a promise.
        """,
        "Rig | File system | Workload | Honest: durable | Lying: caught | Broke | Cuts",
        lines,
    )


def _load(graded_cuts: Sequence[GradedCut]) -> tuple[str, ...]:
    honest = [graded_cut for graded_cut in graded_cuts if graded_cut.honest]
    liars = [graded_cut for graded_cut in graded_cuts if not graded_cut.honest]
    return (
        f"{graded(honest, 'right')}/{len(honest)}" if honest else "",
        str(graded(liars, "right")) if liars else "",
        str(sum(graded_cut.broken != 0 for graded_cut in liars)) if liars else "",
        str(len(liars)) if liars else "",
    )


def _classes(graded_cuts: Sequence[GradedCut]) -> list[str]:
    classes = matrix_report.classes(graded_cuts)
    lines = (
        (
            f"`{name}`",
            f"{one.agreed:,}",
            str(one.false),
            str(one.missed),
            share(one.precision),
            share(one.recall),
            f"{one.unjudged:,}",
        )
        for name, one in classes.items()
    )
    left_out = sum(one.unjudged for one in classes.values())
    return _section(
        "Findings compared with the truth",
        f"""
            Places, over all cuts. A claim is true if the independent reference judge agrees on class, writer,
            slot and operations, and the drive log has a broken promise there. *Missed* are places that could
            have been claimed; places that the tester could not know are listed under their reasons.
            Precision and recall exclude {counted(left_out, "claim")} not compared place by place: all on rig
            C and under nbdkit's filter; all on targets that could no longer be read, such as file systems
            that did not mount; and places beyond the end of a file that a scan only counts. Of the last, the
            number was compared.
        """,
        "Class | Claimed and true | Claimed, not true | Missed | Precision | Recall | Not compared",
        lines,
    )


def _early_ack(cells: Sequence[MatrixCell], graded_cuts: Sequence[GradedCut]) -> list[str]:
    points = _points(cells, graded_cuts, "early-ack")
    if not points:
        return []
    lines = (
        (
            f"{delay_ms} ms",
            *(_point(points, f"early-ack:delay_ms={delay_ms}", rate=rate) for rate in detection_curves.RATES),
        )
        for delay_ms in detection_curves.DELAYS_MS
    )
    return _section(
        "A drive that acknowledges early",
        """
            `early-ack`: a flush returns at once, and the data are on media d ms later. One writer, rig A. The
            table has the share of cuts that were caught, its 95 % interval, and in brackets the share of cuts
            that broke a promise.
        """,
        " | ".join(("d", *(f"{rate:g} commits/s" for rate in detection_curves.RATES))),
        lines,
    )


def _flush_skipped(cells: Sequence[MatrixCell], graded_cuts: Sequence[GradedCut]) -> list[str]:
    points = _points(cells, graded_cuts, "flush-skipped")
    if not points:
        return []
    lines = (
        (
            f"1 in {one_in}",
            *(
                _point(points, f"flush-skipped:one_in={one_in}", writers=writers, rate=rate)
                for writers, rate in detection_curves.LOADS
            ),
        )
        for one_in in detection_curves.ONE_IN
    )
    return _section(
        "A drive that skips some flushes",
        f"""
            `flush-skipped`: one flush in N is only acknowledged. Rig A. A paced writer begins
            {detection_curves.PACED_RATE:g} commits per second, the others as many as they
            can. Shares as above.
        """,
        " | ".join(("Skipped", *(_load_of(writers, rate) for writers, rate in detection_curves.LOADS))),
        lines,
    )


def _load_of(writers: int, rate: float) -> str:
    return f"{counted(writers, 'writer')}, {'paced' if rate else 'unpaced'}"


def _points(
    cells: Sequence[MatrixCell], graded_cuts: Iterable[GradedCut], curve: Curve
) -> dict[tuple[str, int, float], list[GradedCut]]:
    """The graded cuts of a curve, by drive, writers and rate; points without cuts are left out."""
    of_curve = {cell.name: cell for cell in cells if cell.curve == curve}
    points: dict[tuple[str, int, float], list[GradedCut]] = defaultdict(list)
    for graded_cut in graded_cuts:
        cell = of_curve.get(graded_cut.cell)
        if cell is not None and isinstance(cell.load, Scenario):
            points[cell.drive, cell.load.writers, cell.load.rate].append(graded_cut)
    return points


def _point(
    points: dict[tuple[str, int, float], list[GradedCut]], drive: str, *, rate: float, writers: int = 1
) -> str:
    graded_cuts = points.get((drive, writers, rate))
    if not graded_cuts:
        return ""
    cuts, caught = len(graded_cuts), graded(graded_cuts, "right")
    broke = sum(bool(graded_cut.broken) for graded_cut in graded_cuts)
    low, high = interval(caught, cuts)
    return f"{share(caught / cuts)}, {share(low)} to {share(high)} ({share(broke / cuts)})"


def _uncaught(graded_cuts: Sequence[GradedCut]) -> list[str]:
    lines = (
        (str(len(members)), reason, _drives(members), "; ".join(_examples(members)))
        for reason, members in matrix_report.reasons(graded_cuts).items()
    )
    return [
        "## Not caught, and why",
        "",
        *_table("Cuts | Reason | Drives | For example", lines),
        "",
        "The last table lists all of these cuts.",
    ]


def _drives(graded_cuts: Iterable[GradedCut]) -> str:
    return ", ".join(sorted({f"`{graded_cut.cell.split()[1]}`" for graded_cut in graded_cuts}))


def _examples(graded_cuts: Sequence[GradedCut]) -> Iterator[str]:
    for graded_cut in graded_cuts[:_EXAMPLES]:
        yield matrix_report.name(graded_cut)


def _wrong(graded_cuts: Sequence[GradedCut]) -> list[str]:
    wrong = matrix_report.wrong(graded_cuts)
    if not wrong:
        return []
    lines = (
        (
            graded_cut.grade,
            matrix_report.name(graded_cut),
            str(graded_cut.seed),
            "; ".join((graded_cut.reason, *graded_cut.defects)),
        )
        for graded_cut in wrong
    )
    return ["## Wrong results", "", *_table("Grade | Cut | Seed | What", lines)]


def _misses(cells: Sequence[MatrixCell], graded_cuts: Sequence[GradedCut]) -> list[str]:
    grouped: dict[tuple[str, str], list[GradedCut]] = defaultdict(list)
    for reason, members in matrix_report.reasons(graded_cuts).items():
        for graded_cut in members:
            grouped[graded_cut.cell, reason].append(graded_cut)
    order = {cell.name: number for number, cell in enumerate(cells)}
    lines = (
        (
            cell,
            reason,
            ", ".join(f"{graded_cut.number} ({graded_cut.seed})" for graded_cut in _in_order(members)),
        )
        for (cell, reason), members in sorted(grouped.items(), key=lambda one: order[one[0][0]])
    )
    return _section(
        "Every cut that was not caught",
        "Each cut has its number, and its own seed in brackets.",
        "Cell | Reason | Cuts",
        lines,
    )


def _in_order(graded_cuts: Iterable[GradedCut]) -> list[GradedCut]:
    return sorted(graded_cuts, key=lambda graded_cut: graded_cut.number)


def _section(title: str, text: str, headings: str, lines: Iterable[Sequence[str]]) -> list[str]:
    return [f"## {title}", "", _paragraph(text), "", *_table(headings, lines)]


def _paragraph(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)


def _table(headings: str, lines: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a Markdown table; `headings` are separated by ` | `."""
    yield f"| {headings} |"
    yield f"|{'---|' * len(headings.split(' | '))}"
    for line in lines:
        yield f"| {' | '.join(line)} |"

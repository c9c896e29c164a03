"""The listing of drives: which runs count for which drive, and what the verdicts say of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, insert, select

from durability.bench.hashed_serials import mark, marks_of
from durability.formats.facts import Drive, Facts
from durability_server.store import tables
from durability_server.store.drives.drive_claims import RUNS_NAMED_MAX
from durability_server.store.store import RUNS_OF_CLIENT_MAX, Store
from tests import sample_facts
from tests.sample_facts import drive
from tests.server.store.conftest import make_format_2

if TYPE_CHECKING:
    from tests.server.store.conftest import StoreFixture


def on(*drives: Drive, machine: str = "shelf") -> Facts:
    """Facts of a file on those drives of a machine."""
    facts = sample_facts.facts()
    return replace(facts, drives=drives, host=replace(facts.host, machine_id=machine, hostname=machine))


def cut(
    store_fixture: StoreFixture, run: int, facts: Facts, verdict: str, *, cut_class: str = "power"
) -> None:
    """A run on those drives that met a cut of its own; `verdict` "" was never verified."""
    facts = replace(facts, host=replace(facts.host, boot_id=f"boot-{run}"))
    store_fixture.register(run, facts=facts, force=True)
    store_fixture.arm(run, facts=facts)
    store_fixture.save(run, session_end="silence")
    if verdict:
        store_fixture.judge(run, verdict, cut_class=cut_class)


def listed(
    store_fixture: StoreFixture, *, limit: int = 50, drive: str = "", host: str = ""
) -> list[dict[str, Any]]:
    """The rows of everybody's drives."""
    rows = store_fixture.store.drive_listing(limit, client=None, drive=drive, host=host)
    return [dict(row) for row in rows]


def test_a_drive_has_a_row_with_its_cuts_and_its_last_verdict(store_fixture: StoreFixture) -> None:
    """Clean cuts and losses are counted by drive, wherever it was attached; the newest drive comes first."""
    good, bad = drive(model="Good", serial="G1"), drive(model="Bad", serial="B1")
    for run in (1, 2, 3):
        cut(store_fixture, run, on(good, machine="b1" if run < 3 else "b2"), "durable")
    for run, verdict in ((4, "durable"), (5, "loss")):
        cut(store_fixture, run, on(bad), verdict)
    bad_row, good_row = listed(store_fixture)
    names = ("model", "serial", "host", "runs", "cuts", "losses", "verdict")
    assert [good_row[name] for name in names] == ["Good", "G1", "b2", 3, 3, 0, "durable"]
    assert good_row["bound"] == pytest.approx(1 - 0.05 ** (1 / 3))
    assert [bad_row[name] for name in names] == ["Bad", "B1", "shelf", 2, 2, 1, "loss"]
    assert bad_row["bound"] == pytest.approx(1 - 0.025, abs=1e-3)


def test_runs_that_one_cut_ended_are_one_cut(store_fixture: StoreFixture) -> None:
    """Runs of any plan, made at the same time: it lost if one of them did."""
    for run, verdict in ((1, "durable"), (2, "loss"), (3, "durable")):
        store_fixture.register(run, facts=on(drive()), force=True)
        store_fixture.arm(run, facts=on(drive()))
        store_fixture.judge(run, verdict)
    cut(store_fixture, 4, on(drive()), "durable")
    (row,) = listed(store_fixture)
    assert (row["runs"], row["cuts"], row["losses"]) == (4, 2, 1)


def test_what_was_not_verified_leaves_no_bound(store_fixture: StoreFixture) -> None:
    """An unverified cut may hide a loss, so it leaves no bound. It is shown as the newest verdict."""
    cut(store_fixture, 1, on(drive()), "durable")
    cut(store_fixture, 2, on(drive()), "")
    (row,) = listed(store_fixture)
    assert (row["cuts"], row["bound"], row["left_out"], row["verdict"]) == (1, None, 1, "unverified")


def test_the_strongest_class_of_cut_counts(store_fixture: StoreFixture) -> None:
    """Resets of the machine say nothing of power cuts; a loss in one counts all the same."""
    for run, cut_class in enumerate(("os", "os", "power"), 1):
        cut(store_fixture, run, on(drive()), "durable", cut_class=cut_class)
    (row,) = listed(store_fixture)
    assert (row["cut_class"], row["cuts"], row["losses"]) == ("power", 1, 0)
    cut(store_fixture, 4, on(drive()), "loss", cut_class="os")
    (row,) = listed(store_fixture)
    assert (row["cut_class"], row["cuts"], row["losses"]) == ("power", 2, 1)


def test_a_run_on_two_drives_counts_for_both_together(store_fixture: StoreFixture) -> None:
    """A run on a mirror counts for the pair and for neither drive alone, because only one copy is read. A run
    on two partitions of one drive counts once."""
    one, other, nameless = drive(serial="S1", model="A"), drive(serial="S2", model="B"), drive(serial="")
    cut(store_fixture, 1, on(one), "loss")
    for run in (2, 3):
        cut(store_fixture, run, on(other, one, other), "durable")
    cut(store_fixture, 4, on(nameless, one), "durable")
    rows = [
        (row["serial"], row["model"], row["runs"], row["cuts"], row["losses"])
        for row in listed(store_fixture)
    ]
    assert rows == [
        ("? + S1", "Disk + A", 1, 1, 0),
        ("S1 + S2", "A + B", 2, 2, 0),
        ("S1", "A", 1, 1, 1),
    ]
    assert [row["serial"] for row in listed(store_fixture, drive="s2")] == ["S1 + S2"]
    assert [row["runs"] for row in listed(store_fixture, drive="s1")] == [1, 2, 1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: drive(serial=""),
        lambda: drive(serial="QM1", emulated=True),
        lambda: drive(serial="loop:3"),
    ],
    ids=["none", "emulated", "loop"],
)
def test_a_serial_that_other_machines_have_too_is_no_identity(store_fixture: StoreFixture, make: Any) -> None:
    """Drives that only look alike are two, if they are seen on two machines."""
    for run, machine in enumerate(("b1", "b2", "b1"), 1):
        cut(store_fixture, run, on(make(), machine=machine), "durable")
    assert [(row["host"], row["cuts"]) for row in listed(store_fixture)] == [("b1", 2), ("b2", 1)]


def test_drives_that_cannot_be_told_apart_have_no_bound(store_fixture: StoreFixture) -> None:
    """Two cuts may have been of two enclosures of one model; drives with other numbers are other drives."""
    for run, serial in enumerate(("000000000000", "000000000000", "QM00001", "QM00002"), 1):
        cut(store_fixture, run, on(drive(serial=serial)), "durable")
    rows = [(row["serial"], row["cuts"], row["bound"]) for row in listed(store_fixture)]
    assert rows == [("QM00002", 1, None), ("QM00001", 1, None), ("000000000000", 2, None)]


def test_two_disks_of_a_dock_are_two(store_fixture: StoreFixture) -> None:
    """A dock may have one serial for every disk in it; another model is another disk."""
    one, other = drive(model="A", wwid="naa.1"), drive(model="B", wwid="naa.2")
    for run, disks in enumerate(((one,), (other,), (one,), (one, other), (other, one)), 1):
        cut(store_fixture, run, on(*disks), "durable")
    rows = [(row["model"], row["serial"], row["runs"], row["cuts"]) for row in listed(store_fixture)]
    assert rows == [("A + B", "S1 + S1", 2, 2), ("A", "S1", 2, 2), ("B", "S1", 1, 1)]


def test_a_drive_with_new_firmware_is_one(store_fixture: StoreFixture) -> None:
    """A drive remains the same drive with new firmware, with less capacity, or with a world-wide name that it
    shows only sometimes."""
    seen = (drive(), drive(firmware="2.0"), drive(wwid="naa.1"), drive(size_bytes=1 << 30))
    for run, one in enumerate(seen, 1):
        cut(store_fixture, run, on(one), "durable")
    assert [(row["runs"], row["cuts"]) for row in listed(store_fixture)] == [(4, 4)]


def test_a_run_that_was_never_armed_counts_for_no_drive(store_fixture: StoreFixture) -> None:
    """A run that was never armed is counted neither in the listing nor in the claims, although its drives are
    known from its registration."""
    cut(store_fixture, 1, on(drive()), "durable")
    store_fixture.register(2, facts=on(drive()), force=True)
    store_fixture.register(3, facts=on(drive(serial="S2" * 200)), force=True)
    assert [(row["serial"], row["runs"]) for row in listed(store_fixture)] == [("S1", 1)]
    marks = [*marks_of(on(drive()))]
    assert [row["runs"] for row in store_fixture.store.claims(marks, client=None)] == [1]
    assert not store_fixture.store.claims([*marks_of(on(drive(serial="S2" * 200)))], client=None)


def test_a_target_without_a_drive_is_listed_by_its_place(store_fixture: StoreFixture) -> None:
    """A file without a known drive has a row without a name. A run that was never armed has no row."""
    cut(store_fixture, 1, on(), "durable")
    store_fixture.register(2, force=True)
    (row,) = listed(store_fixture)
    assert (row["model"], row["serial"], row["runs"]) == ("", "", 1)


def test_drives_and_runs_are_chosen_by_a_part_of_a_name(store_fixture: StoreFixture) -> None:
    """By model, serial or machine, in any case; what means something to a database is a character."""
    cut(store_fixture, 1, on(drive(model="Evo 100% Pro", serial="AB_1"), machine="rack-1"), "durable")
    cut(store_fixture, 2, on(drive(model="Evo 1000", serial="ABC1"), machine="rack-2"), "durable")

    def serials(drive: str = "", host: str = "") -> list[str]:
        return [row["serial"] for row in listed(store_fixture, drive=drive, host=host)]

    assert serials("evo") == ["ABC1", "AB_1"]
    assert serials("100%") == serials("ab_") == ["AB_1"]
    cut(store_fixture, 3, on(drive(model="Ältere ÉVO", serial="A3"), machine="r3"), "durable")
    assert serials("ÉV") == serials("Ä") == ["A3"]
    if store_fixture.store.name.startswith("sqlite"):  # with PostgreSQL it is as the database was made
        assert serials("év") == serials("ä") == ["A3"]
    assert serials(host="RACK-2") == ["ABC1"]
    assert serials("x") == []
    runs = store_fixture.store.listing(50, client=None, drive="ab_", host="rack")
    assert [row["run"] for row in runs] == [f"{1:016x}"]
    assert [row["serial"] for row in listed(store_fixture, limit=1)] == ["A3"]


def test_a_run_that_is_armed_again_has_its_newest_drives(store_fixture: StoreFixture) -> None:
    """A run that is armed twice, for example by a client that missed the answer, has the drives of the second
    arming."""
    store_fixture.register(1)
    for drives in ((drive(serial="S1"), drive(serial="S2")), (drive(serial="S3"),)):
        store_fixture.arm(1, facts=on(*drives))
    assert [row["serial"] for row in listed(store_fixture)] == ["S3"]


def test_a_client_sees_what_its_own_runs_say(store_fixture: StoreFixture) -> None:
    """Runs of others on the same drive count for them alone."""
    for run, client in ((1, "one"), (2, "other")):
        store_fixture.register(run, force=True, client=client)
        store_fixture.arm(run)
        store_fixture.judge(run, "durable")
    rows = store_fixture.store.drive_listing(5, client="one")
    assert [(row["runs"], row["cuts"]) for row in rows] == [(1, 1)]
    assert store_fixture.store.drive_listing(5, client="third") == ()


def test_a_drive_of_two_clients_is_two(store_fixture: StoreFixture) -> None:
    """A client names its drives itself, so what it says of one counts for no other client's."""
    for run, client, verdict in ((1, "one", "durable"), (2, "other", "loss")):
        store_fixture.register(run, force=True, client=client)
        store_fixture.arm(run)
        store_fixture.judge(run, verdict)
    rows = [(row["client"], row["cuts"], row["losses"], row["verdict"]) for row in listed(store_fixture)]
    assert rows == [("other", 1, 1, "loss"), ("one", 1, 0, "durable")]


@pytest.mark.slow
def test_invented_drives_push_no_other_clients_out(store_fixture: StoreFixture) -> None:
    """Each client has a share of the listing's limit, filled with its newest drives first."""
    for run in range(1, 4):
        store_fixture.register(run, facts=on(drive(serial=f"S{run}")), force=True, client="one")
        store_fixture.arm(run, facts=on(drive(serial=f"S{run}")))
    for run in range(4, 20):
        store_fixture.register(run, facts=on(drive(serial=f"X{run}")), force=True, client="other")
        store_fixture.arm(run, facts=on(drive(serial=f"X{run}")))
    assert [row["serial"] for row in listed(store_fixture, limit=5)] == ["X19", "X18", "X17", "S3", "S2"]
    every = store_fixture.store.drive_listing(50, client=None, of_each=4)
    assert [row["serial"] for row in every] == ["X19", "X18", "X17", "X16", "S3", "S2", "S1"]


@pytest.mark.slow
def test_newer_runs_of_another_client_hide_no_loss(store_fixture: StoreFixture) -> None:
    """A loss stays in the claims when another client has its maximum number of newer runs on a drive with the
    same serial."""
    store_fixture.register(1, force=True, client="one")
    store_fixture.arm(1)
    store_fixture.judge(1, "loss")
    store_fixture.register(2, force=True, client="other")
    store_fixture.arm(2)
    store_fixture.judge(2, "durable")
    _copy_run(store_fixture, 2, RUNS_OF_CLIENT_MAX - 1)
    marks = tuple(marks_of(store_fixture.lab.facts()))
    claims = {row["client"]: row for row in store_fixture.store.claims(marks, client=None)}
    assert claims["one"]["loss_runs"] == [f"{1:016x}"] and claims["one"]["losses"] == 1
    assert (claims["other"]["runs"], claims["other"]["losses"]) == (RUNS_OF_CLIENT_MAX, 0)
    assert claims["other"]["cuts"] == RUNS_OF_CLIENT_MAX


def _copy_run(store_fixture: StoreFixture, run: int, times: int) -> None:
    """More runs like this one, with its drives and verdicts, as rows."""
    of_run = {"run": f"{run:016x}"}
    with store_fixture.store._database.transaction() as db:
        for table in (tables.runs, tables.run_drives, tables.verdicts):
            names = [column.name for column in table.columns]
            (row,) = db.execute(select(table).where(table.c.run == of_run["run"])).mappings()
            rows = []
            for number in range(1, times + 1):
                changed = {"run": f"{run + number:016x}"}
                if table is tables.runs:
                    changed |= {"number": run + number, "enumerations": str(number)}  # type: ignore[dict-item]
                rows.append({name: row[name] for name in names} | changed)
            db.execute(insert(table), rows)


@pytest.mark.parametrize(
    ("serial", "model"),
    [("S1", "Disk"), ("s" * 4000, "Disk"), ("S1", "m" * 4000)],
    ids=["short", "long", "long-model"],
)
@pytest.mark.parametrize("emulated", [False, True])
def test_claims_are_of_exactly_the_drives_asked_for(
    store_fixture: StoreFixture, serial: str, model: str, emulated: bool
) -> None:
    """A mirror of the drive and another is another target; an emulated drive is one machine's."""
    mine = drive(serial=serial, model=model, emulated=emulated)
    cut(store_fixture, 1, on(mine), "durable")
    cut(store_fixture, 2, on(mine, drive(serial="S2")), "loss")
    cut(store_fixture, 3, on(mine, machine="other"), "loss")
    cut(store_fixture, 4, on(drive(serial="S3")), "loss")
    (row,) = store_fixture.store.claims(tuple(marks_of(on(mine))), client=None)
    assert (row["runs"], row["losses"]) == ((1, 0) if emulated else (2, 1))
    assert store_fixture.store.claims(tuple(marks_of(on(drive(serial="S9")))), client=None) == ()
    assert store_fixture.store.claims((), client=None) == ()


def claimed(store_fixture: StoreFixture) -> dict[str, Any]:
    """What the runs on the drive say."""
    (row,) = store_fixture.store.claims(tuple(marks_of(on(drive()))), client=None)
    return dict(row)


def test_many_runs_of_one_series_hide_no_other(store_fixture: StoreFixture) -> None:
    """The newest of each series and class is named, which tells of the earlier ones: cuts of the power are
    not hidden by as many newer ones that left the drive its power as names are given."""
    cut(store_fixture, 1, on(drive()), "durable")
    store_fixture.register(2, facts=on(drive()), force=True)
    store_fixture.arm(2, facts=on(drive()))
    store_fixture.judge(2, "durable", cut_class="os")
    _copy_run(store_fixture, 2, RUNS_NAMED_MAX)
    cut(store_fixture, 100, on(drive(wwid="naa.1")), "durable")
    newest = f"{2 + RUNS_NAMED_MAX:016x}"
    assert claimed(store_fixture)["durable_runs"] == [f"{100:016x}", f"{1:016x}", newest]


def test_a_series_that_lacks_an_outcome_is_named_once(store_fixture: StoreFixture) -> None:
    """By a run that lost nothing, which tells of them; else by its newest one without."""
    cut(store_fixture, 1, on(drive()), "durable")
    cut(store_fixture, 2, on(drive()), "")
    row = claimed(store_fixture)
    assert (row["durable_runs"], row["unanswered_runs"], row["left_out"]) == ([f"{1:016x}"], [], 1)
    for run in (3, 4):
        cut(store_fixture, run, on(drive(wwid="naa.1")), "")
    assert claimed(store_fixture)["unanswered_runs"] == [f"{4:016x}"]
    store_fixture.judge(3, "inconclusive", "superseded")
    assert claimed(store_fixture)["unanswered_runs"] == [f"{3:016x}", f"{4:016x}"]


def test_a_weaker_cut_names_the_run_without_an_outcome_too(store_fixture: StoreFixture) -> None:
    """A run without an outcome is named until a later run survives a power cut. Weaker cuts do not show
    whether that run met a power cut."""
    for run, cut_class in enumerate(("os", "vm"), 1):
        cut(store_fixture, run, on(drive()), "durable", cut_class=cut_class)
    cut(store_fixture, 3, on(drive()), "")
    assert claimed(store_fixture)["unanswered_runs"] == [f"{3:016x}"]
    cut(store_fixture, 4, on(drive()), "durable")
    assert claimed(store_fixture)["unanswered_runs"] == []


def test_a_serial_that_any_drive_may_have_claims_nothing(store_fixture: StoreFixture) -> None:
    """A hidden one is asked for like any other."""
    cut(store_fixture, 1, on(drive(serial="00000000")), "loss")
    assert marks_of(on(drive(serial="00000000"))) == frozenset()
    assert store_fixture.store.claims((mark("00000000", ""),), client=None) == ()


def test_a_store_of_before_gets_its_drives(store_fixture: StoreFixture, store_url: str) -> None:
    """A store without the table has the drives of all its armed runs as soon as it is opened."""
    cut(store_fixture, 1, on(drive(serial="S1"), drive(serial="S2")), "durable")
    store_fixture.register(2, force=True)
    before = listed(store_fixture)
    store_fixture.store.close()
    engine = create_engine(store_url)
    with engine.begin() as db:
        make_format_2(db)
        tables.run_drives.drop(db)
    engine.dispose()
    store = Store(store_url)
    store.open()
    after = [dict(row) for row in store.drive_listing(5, client=None)]
    store.close()
    assert len(before) == 1 and after == before


@pytest.mark.slow
def test_a_drive_may_call_itself_anything(store_fixture: StoreFixture) -> None:
    """A drive's name is stored as plain text, without characters that a database refuses or a terminal
    obeys."""
    cut(store_fixture, 1, on(drive(model="m\0\x1b[31m")), "durable")
    (row,) = listed(store_fixture)
    assert row["model"].isprintable()


def test_a_drive_with_a_long_name_is_kept(store_fixture: StoreFixture) -> None:
    """A drive's model and serial are cut to 100 characters in the listing."""
    cut(store_fixture, 1, on(drive(model="m" * 4000, serial="s" * 4000)), "durable")
    (row,) = listed(store_fixture)
    assert (len(row["model"]), len(row["serial"])) == (100, 100)

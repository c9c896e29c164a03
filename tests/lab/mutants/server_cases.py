"""The lab's cases of claiming a run: a real server, and clients that ask for what nobody may have twice.

An answer is what the server lets them do.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from durability import limits
from durability.errors import DurabilityError, RefusedError
from durability.evidence.cut import assess
from durability.formats.facts import Drive, Facts
from durability.formats.packing import Value
from durability.formats.plan import Plan
from durability.protocol.messages import Ack, Credit, GiveVerdict, List, Listing, Stored
from durability.units import format_run
from tests.lab.mutants.lab_case import lab_case
from tests.sample_facts import drive
from tests.server.conftest import SECRET, Client, Lab

Story = Callable[[Lab, tuple[str, int], Plan], Awaitable[str]]


def served(story: Story) -> str:
    """What comes of a story that begins with a server."""

    async def tell() -> str:
        with tempfile.TemporaryDirectory(prefix="durability-lab-") as directory:
            lab = Lab(Path(directory))
            try:
                running = await lab.start(f"sqlite:///{directory}/store")
                return await story(lab, running.address, lab.plan())
            finally:
                await lab.close()

    return asyncio.run(tell())


async def _begun(lab: Lab, address: tuple[str, int], plan: Plan) -> Client:
    """A client whose run is armed and has had five operations of each writer acknowledged."""
    client = await lab.connect(address)
    await client.begin(plan, lab.facts())
    await client.acknowledge(5, 5)
    return client


async def _granted(client: Client, grant: int) -> None:
    """Returns when the server grants credit for that frontier."""
    while (await client.get(Credit)).grants[0] < grant:
        pass


def _given(code: str) -> dict[str, Value]:
    """A verdict on a power cut: inconclusive for the reason `code`, durable without one."""
    return {
        "verdict": "inconclusive" if code else "durable",
        "reasons": [{"code": code, "text": ""}] if code else [],
        "cut": {"class": "power"},
        "at_risk": {"ms1000": 5},
    }


@lab_case("durable, and durable in its series")
def run_of_which_more_was_asked_later() -> str:
    """A run was verified, then asked for ten cuts, then verified once more after a later run was made."""

    async def story(lab: Lab, address: tuple[str, int], plan: Plan) -> str:
        await (await _begun(lab, address, plan)).close()
        await lab.exported(address, plan.run, lambda case: case.session_end != "live")
        verifier = await lab.connect(address, "verify")
        await verifier.fetch(plan.run, lab.facts(), end=True)
        later = replace(plan, run=77)
        await (await lab.connect(address)).begin(later, lab.facts(), force=True)
        for code in ("", "too-few-cuts", "superseded"):
            await verifier.ask(GiveVerdict(run=plan.run, document=_given(code)), Stored)
        asker = await lab.connect(address, "query")
        rows = (await asker.ask(List(limit=10), Listing)).rows
        (listed,) = (row["verdict"] for row in rows if row["run"] == format_run(plan.run))
        (past,) = (await asker.export(later.run)).series
        return f"{listed}, and {past.verdict} in its series"

    return served(story)


async def _superseded_by_a_file_on_it(
    lab: Lab, address: tuple[str, int], plan: Plan, disk: Drive, *, is_armed: bool = True
) -> str:
    file = lab.facts(drives=(disk,))
    whole = replace(
        file,
        kind="device",
        file_system=None,
        path="/dev/sda",
        path_in_file_system="",
        offset_bytes=0,
        size_bytes=disk.size_bytes,
    )
    await (await lab.connect(address)).begin(plan, whole)
    later = await lab.connect(address)
    await (later.begin if is_armed else later.register)(replace(plan, run=77), file)
    case = await (await lab.connect(address, "query")).export(plan.run)
    return "superseded" if case.superseded_by == format_run(77) else "not superseded"


@lab_case("os")
def power_cut_after_a_reset_that_a_verify_of_another_run_had_seen() -> str:
    """The operating system of two runs died, and a verify of the one found their drive with power; the plug
    was pulled after that."""

    async def story(lab: Lab, address: tuple[str, int], plan: Plan) -> str:
        counters = (drive(diskseq=9, unsafe_shutdowns=3),)
        found = replace(lab.facts(drives=counters), path="/other", path_in_file_system="other")
        for one, facts in ((plan, lab.facts(drives=counters)), (replace(plan, run=77), found)):
            client = await lab.connect(address)
            await client.begin(one, facts)
            client.reset()
            await lab.exported(address, one.run, lambda case: case.session_end != "live")
        verifier = await lab.connect(address, "verify")
        await verifier.fetch(77, _in_boot(found, "second", count=3), end=True)
        now = _in_boot(lab.facts(), "third", count=4)
        return assess(await verifier.fetch(plan.run, now), now, attested=None, cut_class=None).cut_class

    return served(story)


@lab_case("os")
def power_cut_after_a_reset_that_another_run_was_armed_after() -> str:
    """The operating system of a run died; after the boot another run began on its drive, which had power; the
    plug was pulled after that."""

    async def story(lab: Lab, address: tuple[str, int], plan: Plan) -> str:
        facts = lab.facts(drives=(drive(diskseq=9, unsafe_shutdowns=3),))
        other = replace(facts, path="/other", path_in_file_system="other")
        for one, found in ((plan, facts), (replace(plan, run=77), _in_boot(other, "second", count=3))):
            client = await lab.connect(address)
            await client.begin(one, found)
            client.reset()
            await lab.exported(address, one.run, lambda case: case.session_end != "live")
        verifier = await lab.connect(address, "verify")
        now = _in_boot(facts, "third", count=4)
        return assess(await verifier.fetch(plan.run, now), now, attested=None, cut_class=None).cut_class

    return served(story)


@lab_case("superseded")
def volume_on_which_a_file_system_was_made() -> str:
    """A run on a volume of LVM; then a file system was made on it, and a run on a file there."""

    async def story(lab: Lab, address: tuple[str, int], plan: Plan) -> str:
        on_file = replace(lab.facts(), offset_bytes=None, volume="LVM-a")
        on_volume = replace(
            on_file, kind="device", path="/dev/vg/lv", path_in_file_system="", file_system=None
        )
        for one, facts in ((plan, on_volume), (replace(plan, run=77), on_file)):
            client = await lab.connect(address)
            await client.begin(one, facts)
            client.reset()
            await lab.exported(address, one.run, lambda case: case.session_end != "live")
        case = await lab.exported(address, plan.run, lambda case: True)
        return "superseded" if case.superseded_by == format_run(77) else "not superseded"

    return served(story)


def _in_boot(facts: Facts, boot: str, *, count: int) -> Facts:
    """As they are found in another boot, just begun, with that count of power losses."""
    host = replace(facts.host, boot_id=boot, uptime_ns=0)
    return replace(facts, host=host, drives=(drive(diskseq=1, unsafe_shutdowns=count),))


@lab_case("superseded")
def whole_drive_on_whose_partition_a_later_run_was_made() -> str:
    """A run on a whole drive; then a file system was made on it, and a run on a file there."""

    async def story(lab: Lab, address: tuple[str, int], plan: Plan) -> str:
        return await _superseded_by_a_file_on_it(lab, address, plan, drive())

    return served(story)


@lab_case("superseded")
def whole_drive_on_whose_partition_a_later_run_never_began() -> str:
    """The same, but the later run was cut while it prepared its file."""

    async def story(lab: Lab, address: tuple[str, int], plan: Plan) -> str:
        return await _superseded_by_a_file_on_it(lab, address, plan, drive(), is_armed=False)

    return served(story)


@lab_case("superseded")
def guests_disk_on_whose_partition_a_later_run_was_made() -> str:
    """The same on a disk of a guest, which has only the hypervisor's number."""

    async def story(lab: Lab, address: tuple[str, int], plan: Plan) -> str:
        return await _superseded_by_a_file_on_it(lab, address, plan, drive(serial="QM00001", emulated=True))

    return served(story)


@lab_case("0 other cuts in the series")
def series_of_two_enclosures_whose_serials_are_zeros() -> str:
    """A run on a USB disk met a cut. Then a run is made on another one of the model, with the same zeros as
    serial."""

    async def story(lab: Lab, address: tuple[str, int], plan: Plan) -> str:
        one, other = (lab.facts(serial="000000000000", uuid=uuid) for uuid in ("uuid-1", "uuid-2"))
        first = await lab.connect(address)
        await first.begin(plan, one)
        await first.close()
        await lab.exported(address, plan.run, lambda case: case.session_end != "live")
        verifier = await lab.connect(address, "verify")
        await verifier.fetch(plan.run, one, end=True)
        await verifier.ask(GiveVerdict(run=plan.run, document=_given("")), Stored)
        await (await lab.connect(address)).begin(replace(plan, run=77), other)
        case = await (await lab.connect(address, "query")).export(77)
        return f"{len(case.series)} other cuts in the series"

    return served(story)


async def _claimed(client: Client, plan: Plan, secret: bytes) -> str:
    try:
        await client.resume(plan.run, secret)
    except RefusedError as error:
        return f"refused: {error.code}"
    return "accepted"


@lab_case("refused: fenced")
def second_client_without_the_secret() -> str:
    """Another process asks to go on with a run, whose secret it cannot know."""

    async def story(lab: Lab, address: tuple[str, int], plan: Plan) -> str:
        await _begun(lab, address, plan)
        return await _claimed(await lab.connect(address), plan, b"t" * 32)

    return served(story)


@lab_case("accepted, the older connection is refused: fenced")
def client_that_came_back() -> str:
    """A client resumes its run over a new connection; then the old one acknowledges more."""

    async def story(lab: Lab, address: tuple[str, int], plan: Plan) -> str:
        older = await _begun(lab, address, plan)
        newer = await lab.connect(address)
        answer = await _claimed(newer, plan, SECRET)
        with suppress(DurabilityError):  # it may have been told already
            older.say(Ack(frontiers=(6, 6), control=0))
        refused, believed = asyncio.create_task(older.ended()), asyncio.create_task(_granted(newer, 6))
        await asyncio.wait({refused, believed}, return_when=asyncio.FIRST_COMPLETED)
        believed.cancel()
        if not refused.done():
            return f"{answer}, and so is the older connection"
        error = refused.result()
        assert isinstance(error, RefusedError)
        return f"{answer}, the older connection is refused: {error.code}"

    return served(story)


@lab_case("refused: run-live, then refused: run-ended")
def client_that_comes_back_after_verify() -> str:
    """Verify asks for a live run; the client goes away, verify ends the run, the client comes back."""

    async def story(lab: Lab, address: tuple[str, int], plan: Plan) -> str:
        # A machine that stands still does so with client and server, and must not make the one silent.
        with patch.object(limits, "SILENCE_NS", 3600 * 10**9):
            client = await _begun(lab, address, plan)
            verifier = await lab.connect(address, "verify")
            first = "accepted"
            try:
                await verifier.fetch(plan.run, lab.facts(), end=True)
            except RefusedError as error:
                first = f"refused: {error.code}"
        await client.close()
        await lab.exported(address, plan.run, lambda case: case.session_end != "live")
        verifier = await lab.connect(address, "verify")
        await verifier.fetch(plan.run, lab.facts(), end=True)
        return f"{first}, then {await _claimed(await lab.connect(address), plan, SECRET)}"

    return served(story)

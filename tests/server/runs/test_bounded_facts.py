"""What a client says of its target has bounds, and within them every database takes it."""

from __future__ import annotations

import random
import string
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from durability import limits
from durability.errors import RefusedError
from durability.formats.facts import TargetWarning
from durability.protocol import messages
from tests.sample_facts import drive
from tests.server.conftest import FACTS

if TYPE_CHECKING:
    from tests.server.conftest import Lab

pytestmark = pytest.mark.usefixtures("no_silence")

assert FACTS.file_system is not None
MANY_DRIVES = tuple(drive(serial=f"S{number}") for number in range(limits.FACTS_DRIVES_MAX + 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"path": "/" + "x" * 4096}, "path"),
        ({"file_system": replace(FACTS.file_system, mount_point="/" + "x" * 4096)}, "mount_point"),
        ({"host": replace(FACTS.host, hostname="h" * 257)}, "hostname"),
        ({"drives": MANY_DRIVES}, "drives"),
        ({"layers": ("x",) * (limits.FACTS_LAYERS_MAX + 1)}, "layers"),
        ({"warnings": (TargetWarning(code="c", text=""),) * (limits.FACTS_WARNINGS_MAX + 1)}, "warnings"),
    ],
)
async def test_what_is_beyond_is_refused(
    lab: Lab, sqlite_url: str, change: dict[str, Any], field: str
) -> None:
    """Before anything is kept of it, by the name of the field."""
    running = await lab.start(sqlite_url)
    client = await lab.connect(running.address)
    with pytest.raises(RefusedError, match=f"{field}: ") as refused:
        await client.register(lab.plan(), replace(lab.facts(), **change))
    assert refused.value.code == "bad-request"
    asker = await lab.connect(running.address, "query")
    assert (await asker.ask(messages.List(limit=1), messages.Listing)).rows == ()


@pytest.mark.slow
async def test_the_longest_are_kept_and_found(lab: Lab, store_url: str) -> None:
    """A path of the maximum length and a target with the most drives are stored and found again, although an
    index holds less."""
    chance = random.Random(1)

    def name(length: int) -> str:
        return "".join(chance.choices(string.ascii_letters + string.digits, k=length))

    running = await lab.start(store_url)
    path = f"/{name(4095)}"
    many = tuple(drive(serial=name(40)) for _ in range(limits.FACTS_DRIVES_MAX))
    facts = lab.facts(uuid=name(256), path=path, path_in_file_system=path, drives=many)
    facts = replace(facts, host=replace(facts.host, machine_id=name(256)))
    client = await lab.connect(running.address)
    await client.begin(lab.plan(run=1), facts)
    await client.acknowledge(3, 3)
    await client.close()
    again = await lab.connect(running.address)
    with pytest.raises(RefusedError) as refused:
        await again.register(lab.plan(run=2), facts)
    assert refused.value.code == "unverified-run"
    verifier = await lab.connect(running.address, "verify")
    case = await verifier.fetch(0, facts, end=True)
    assert (int(case.run, 16), case.armed) == (1, facts)

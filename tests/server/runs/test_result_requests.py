"""Requests about kept results over real connections: who may keep, list and read them, what is refused."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest

from durability import limits
from durability.bench.kept_result import pack_body, summary_of, unpack_body
from durability.errors import RefusedError
from durability.formats.documents import to_value
from durability.formats.packing import Value
from durability.protocol import auth, messages
from tests.core.bench.results import Device, simulate

if TYPE_CHECKING:
    from tests.server.conftest import Lab

RESULT = simulate(Device())


def summary() -> dict[str, Value]:
    """The summary of the result."""
    return to_value(summary_of(RESULT))


@pytest.mark.slow
async def test_a_client_keeps_and_a_viewer_reads(lab: Lab, sqlite_url: str) -> None:
    """A client sees its own result, another one does not, a viewer and the operator see all; a viewer keeps
    none."""
    running = await lab.start(sqlite_url)
    operator = await lab.connect(running.address, "operate", local=True)
    roles: tuple[auth.Role, auth.Role] = ("client", "viewer")
    other, viewer = [
        await lab.join(
            running.address,
            (await operator.ask(messages.Invite(role=role, name=role), messages.Invited)).line,
        )
        for role in roles
    ]
    owner = await lab.connect(running.address, "verify")
    keep = messages.KeepResult(summary=summary(), body=pack_body(RESULT))
    kept = (await owner.ask(keep, messages.ResultKept)).result
    assert (await owner.ask(keep, messages.ResultKept)).result == kept

    for reader in (
        await lab.connect(running.address, "query"),
        await lab.connect(running.address, "query", member=viewer),
        await lab.connect(running.address, "query", local=True),
    ):
        (row,) = (await reader.ask(messages.ListResults(limit=5), messages.Listing)).rows
        assert (row["result"], row["client_name"], row["host"]) == (kept, "test", "shelf-3")
        found = await reader.ask(messages.FetchResult(result=kept), messages.KeptResult)
        assert found.row == row and unpack_body(found.body)[1] == RESULT
    stranger = await lab.connect(running.address, "query", member=other)
    assert (await stranger.ask(messages.ListResults(limit=5), messages.Listing)).rows == ()
    with pytest.raises(RefusedError, match="has no result"):
        await stranger.ask(messages.FetchResult(result=kept), messages.KeptResult)
    with pytest.raises(RefusedError, match="joined as viewer"):
        await lab.connect(running.address, "verify", member=viewer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"no zlib", "cannot be unpacked"),
        (zlib.compress(b"x" * 1000)[:-4], "cut off, or something follows"),
        (zlib.compress(b"x") + b"more", "cut off, or something follows"),
        (zlib.compress(bytes(limits.RESULT_BYTES_MAX + 1)), "is longer than"),
    ],
    ids=["garbage", "cut off", "more", "a bomb"],
)
async def test_a_body_that_is_not_whole_is_refused(
    lab: Lab, sqlite_url: str, body: bytes, words: str
) -> None:
    """A result body that cannot be unpacked to a bounded length is refused and not stored."""
    running = await lab.start(sqlite_url)
    owner = await lab.connect(running.address, "verify")
    with pytest.raises(RefusedError, match=words) as refused:
        await owner.ask(messages.KeepResult(summary=summary(), body=body), messages.ResultKept)
    assert refused.value.code == "bad-request"
    reader = await lab.connect(running.address, "query")
    assert (await reader.ask(messages.ListResults(limit=5), messages.Listing)).rows == ()


async def test_a_summary_with_other_fields_is_refused(lab: Lab, sqlite_url: str) -> None:
    """A summary is what the list can show, and nothing else."""
    running = await lab.start(sqlite_url)
    owner = await lab.connect(running.address, "verify")
    body = pack_body(RESULT)
    with pytest.raises(RefusedError, match="not a valid KeptSummary: more"):
        await owner.ask(messages.KeepResult(summary=summary() | {"more": 1}, body=body), messages.ResultKept)

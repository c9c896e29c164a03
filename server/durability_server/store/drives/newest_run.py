"""The newest run on a target whose superblock is gone, and advice if the store has no run there.

All functions run within a transaction of the caller. If several clients have runs there, none is chosen: each
client names its own runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, and_

from durability.errors import RefusedError
from durability.formats.documents import from_value
from durability.formats.facts import Facts
from durability.formats.packing import unpack
from durability.plain_text import owner_label
from durability.units import parse_run, verify_device_line
from durability_server.store import tables
from durability_server.store.client_store import client_names
from durability_server.store.run_rows import known_row, newest_of_each_client, of_client
from durability_server.store.target_keys import TargetKeys

_CANDIDATES_MAX = 5  # runs named in a refusal
_NOT_ON_TARGET = "the target holds no superblock of a run, and this server has no armed run on it"


def on_target(db: Connection, keys: TargetKeys, *, client: str | None) -> int:
    """The newest armed run of `client` on the target; with None, of the only client that has one. Raises
    RefusedError "run-unknown" if there is none, and "run-ambiguous" if several clients have one."""
    armed = and_(tables.runs.c.armed.is_not(None), of_client(client))
    at_path = replace(keys, drive="", file_system="")  # the same path with anything mounted there
    rows = newest_of_each_client(db, keys, armed)
    there = [] if rows else newest_of_each_client(db, at_path, armed)
    for found, where in ((rows, "on this target"), (there, "at this path, on other drives")):
        if len(found) > 1:
            raise RefusedError("run-ambiguous", _several_clients(found, client_names(db), where))
    if rows:
        return parse_run(rows[0].run)
    facts = tables.runs.c.armed
    elsewhere = (there[0], known_row(db, parse_run(there[0].run), facts).armed) if there else None
    raise RefusedError("run-unknown", f"{_NOT_ON_TARGET}: {_advice(elsewhere)}")


def _several_clients(rows: Sequence[Row[Any]], names: Mapping[str, str], where: str) -> str:
    shown = [
        f"--run {row.run} of {owner_label(row.client, names.get(row.client, ''))}"
        for row in rows[:_CANDIDATES_MAX]
    ]
    more = f", or one of {len(rows) - len(shown)} more" if len(rows) > len(shown) else ""
    return f"{len(rows)} clients have runs {where}: name the run with {', '.join(shown)}{more}"


def _advice(elsewhere: tuple[Row[Any], bytes] | None) -> str:
    """Advice about a target without a run. `elsewhere`: the newest run at its path on other drives, with its
    facts."""
    if elsewhere is None:
        return (
            "check the path and that its file system is mounted, or name the run with --run. If the file"
            f" system no longer mounts: {verify_device_line()} (`durability runs --all` lists the runs)"
        )
    run, facts = elsewhere
    armed = from_value(Facts, unpack(facts))
    what = f"run {run.run} of {run.registered_wall} was made at this path"
    if armed.file_system is None:
        return f"{what}, on other drives. Attach those, or name the run with --run {run.run}"
    source = armed.file_system.source
    return (
        f"{what}, on the file system of {source}. Mount that, then verify again. If it no longer mounts:"
        f" {verify_device_line(source, run.run)} ({source} is its name at arming and may be another"
        " device now)"
    )

"""A store that tests fill with runs and verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Connection, text

from durability.formats.case import PastVerdict
from durability.formats.documents import to_value
from durability.formats.facts import Facts
from durability.formats.plan import Plan
from durability_server.store.records import Registration, RunSnapshot
from durability_server.store.store import Store
from durability_server.store.target_keys import series_key, target_keys

if TYPE_CHECKING:
    from tests.server.conftest import Lab


class StoreFixture:
    """A store under test and the runs that a test puts into it."""

    def __init__(self, store: Store, lab: Lab) -> None:
        self.store = store
        self.lab = lab

    def register(
        self, run: int, *, facts: Facts | None = None, force: bool = False, client: str = "", **planned: Any
    ) -> None:
        """Registers a run of two writers; any other field of its plan by keyword."""
        facts = facts or self.lab.facts()
        plan = self.lab.plan(run=run, **planned)
        new = Registration(
            run=run,
            client=client,
            label="label",
            plan=plan.encode(),
            secret=b"s" * 32,
            facts=facts,
            keys=target_keys(facts),
            path=facts.path,
            host=facts.host.hostname,
            wall="2026-01-01T00:00:00Z",
            writers=plan.writers,
        )
        self.store.register(new, force=force)

    def arm(self, run: int, *, facts: Facts | None = None) -> None:
        """Arms a registered run."""
        facts = facts or self.lab.facts()
        stored = self.store.load(run)
        plan = Plan.decode(stored.plan)
        armed = replace(
            stored, armed=to_value(facts), keys=target_keys(facts), series=series_key(plan, facts)
        )
        self.store.arm(armed)

    def save(self, run: int, **changes: Any) -> RunSnapshot:
        """Saves a run with some changes."""
        snapshot = replace(self.store.load(run).snapshot, events=(), **changes)
        self.store.save([snapshot])
        return snapshot

    def judge(self, run: int, verdict: str, *reasons: str, cut_class: str = "power") -> None:
        """Adds a verdict."""
        past = PastVerdict(
            run=f"{run:016x}",
            verdict=verdict,
            cut_class=cut_class,
            at_risk_ms1000=3,
            wall="2026-01-02T00:00:00Z",
            reasons=reasons,
        )
        self.store.add_verdict(past, {"verdict": verdict})


def make_format_2(db: Connection) -> None:
    """Take from the store what a step added to its tables, and what was known of runs that were never armed,
    as if a release before had made it."""
    for column in (
        "meta DROP COLUMN software",
        "runs DROP COLUMN enumerations",
        "runs DROP COLUMN drive_set",
    ):
        db.execute(text(f"ALTER TABLE {column}"))
    db.execute(text("DROP INDEX runs_by_session_end"))
    db.execute(text("DROP TABLE registrations"))
    db.execute(text("DELETE FROM run_drives WHERE run IN (SELECT run FROM runs WHERE armed IS NULL)"))
    db.execute(text("UPDATE meta SET format = 2"))


@pytest.fixture
def store_fixture(store_url: str, lab: Lab) -> Iterator[StoreFixture]:
    """An open store."""
    store = Store(store_url)
    store.open()
    yield StoreFixture(store, lab)
    store.close()

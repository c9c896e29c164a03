"""A standby of a store's database that lacks the newest commits, and takes over."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, delete, insert, select

from durability_server.store import tables
from durability_server.store.store import Store


class Standby:
    """Has what was committed when it was made."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows: dict[str, list[Row[Any]]] = {}
        with store._database.transaction() as db:
            for table in tables.metadata.sorted_tables:
                self._rows[table.name] = list(db.execute(select(table)))

    def take_over(self) -> None:
        """From now on the store has that alone. Belongs to the thread that changes the store."""
        with self._store._database.transaction() as db:
            for table in reversed(tables.metadata.sorted_tables):
                db.execute(delete(table))
            for table in tables.metadata.sorted_tables:
                if rows := [dict(row._mapping) for row in self._rows[table.name]]:
                    db.execute(insert(table), rows)

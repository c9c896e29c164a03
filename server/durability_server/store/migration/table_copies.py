"""The copies of tables that a migration keeps in PostgreSQL, beside the tables.

A copy has all that its table has: rows, keys, and indexes, which have their names behind the prefix as well.
So whoever drops the tables and takes the prefix off has the store as it was, to which that release saves, and
which a later one migrates (docs/how-to/upgrade.md has the lines). Within a transaction of the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, inspect


def write(db: Connection, names: Sequence[str], prefix: str) -> None:
    """Copy these tables. Those that they refer to are among them."""
    for name in names:
        # Without defaults: that of a number would be the table's own sequence, which goes with it.
        db.exec_driver_sql(f'CREATE TABLE "{prefix}{name}" (LIKE "{name}")')
        db.exec_driver_sql(f'INSERT INTO "{prefix}{name}" SELECT * FROM "{name}"')
    inspector = inspect(db)
    for name in names:
        copy = f'"{prefix}{name}"'
        primary = inspector.get_pk_constraint(name)
        keys = [("PRIMARY KEY", primary["name"], primary["constrained_columns"])]
        keys += [
            ("UNIQUE", one["name"], one["column_names"]) for one in inspector.get_unique_constraints(name)
        ]
        for kind, key, columns in keys:
            added = f'"{prefix}{key}" {kind} ({_listed(columns)})'
            db.exec_driver_sql(f"ALTER TABLE {copy} ADD CONSTRAINT {added}")
        for index in inspector.get_indexes(name):
            if "duplicates_constraint" not in index:
                on = f"{copy} ({_listed(index['column_names'])})"
                db.exec_driver_sql(f'CREATE INDEX "{prefix}{index["name"]}" ON {on}')
    for name in names:  # now that the keys are there to which they refer
        for link in inspector.get_foreign_keys(name):
            mine, theirs = _listed(link["constrained_columns"]), _listed(link["referred_columns"])
            refers = f'FOREIGN KEY ({mine}) REFERENCES "{prefix}{link["referred_table"]}" ({theirs})'
            # Its name may be that of the table's: it has no index.
            db.exec_driver_sql(f'ALTER TABLE "{prefix}{name}" ADD CONSTRAINT "{link["name"]}" {refers}')


def _listed(columns: Iterable[str | None]) -> str:
    return ", ".join(f'"{column}"' for column in columns)

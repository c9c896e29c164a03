"""The copies of tables that a migration keeps in PostgreSQL, beside the tables.

A copy has all that its table has: rows, keys, and indexes, which have their names behind the prefix as well.
So whoever drops the tables and takes the prefix off has the store as it was, to which that release saves, and
which a later one migrates (docs/how-to/upgrade.md has the lines). Within a transaction of the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

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
        keys = [("PRIMARY KEY", inspector.get_pk_constraint(name), "constrained_columns")]
        keys += [("UNIQUE", key, "column_names") for key in inspector.get_unique_constraints(name)]
        for kind, key, columns in keys:
            named = f'"{prefix}{key["name"]}" {kind}'
            db.exec_driver_sql(f"ALTER TABLE {copy} ADD CONSTRAINT {named} ({_listed(key[columns])})")
        for index in inspector.get_indexes(name):
            if "duplicates_constraint" not in index:
                columns = _listed(index["column_names"])
                db.exec_driver_sql(f'CREATE INDEX "{prefix}{index["name"]}" ON {copy} ({columns})')
    for name in names:  # now that the keys are there to which they refer
        for key in inspector.get_foreign_keys(name):
            mine, theirs = _listed(key["constrained_columns"]), _listed(key["referred_columns"])
            refers = f'FOREIGN KEY ({mine}) REFERENCES "{prefix}{key["referred_table"]}" ({theirs})'
            # Its name may be that of the table's: it has no index.
            db.exec_driver_sql(f'ALTER TABLE "{prefix}{name}" ADD CONSTRAINT "{key["name"]}" {refers}')


def _listed(columns: Iterable[Any]) -> str:
    return ", ".join(f'"{column}"' for column in columns)

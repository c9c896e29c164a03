"""The copies of tables that a migration in PostgreSQL keeps beside the tables.

A copy has the table's rows, keys and indexes, whose names get the prefix too. Dropping the tables and
removing the prefix restores the old store. The old release can save to it, and a later one can migrate it
(docs/how-to/upgrade.md has the commands). All functions run within a transaction of the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, inspect


def write(db: Connection, names: Sequence[str], prefix: str) -> None:
    """Copies these tables. Tables that they refer to must be among them."""
    for name in names:
        # Without defaults: a number's default would be the table's own sequence, which is dropped with the
        # table.
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
    for name in names:  # last, because the keys that they refer to must exist
        for link in inspector.get_foreign_keys(name):
            mine, theirs = _listed(link["constrained_columns"]), _listed(link["referred_columns"])
            refers = f'FOREIGN KEY ({mine}) REFERENCES "{prefix}{link["referred_table"]}" ({theirs})'
            # May keep the table's constraint name, because a foreign key has no index.
            db.exec_driver_sql(f'ALTER TABLE "{prefix}{name}" ADD CONSTRAINT "{link["name"]}" {refers}')


def _listed(columns: Iterable[str | None]) -> str:
    return ", ".join(f'"{column}"' for column in columns)

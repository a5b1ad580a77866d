"""How an older store becomes one of this version: one function for each step, run in order and in one transaction."""

from collections.abc import Callable, Mapping

import sqlalchemy as sa

from .errors import StoreError
from .schema import METADATA, OWN_TABLES, VERSION, evaluations_by_finish, evaluations_by_turn, schema_version


def _resources_and_order(connection: sa.Connection) -> None:
    """1 → 2: what an evaluation runs on; indices in the order of the queue and of time. New tables are made apart."""
    connection.exec_driver_sql("ALTER TABLE evaluations ADD COLUMN needs VARCHAR(16) DEFAULT 'vgpu' NOT NULL")
    connection.exec_driver_sql("DROP INDEX evaluations_by_state")
    evaluations_by_turn.create(connection)
    evaluations_by_finish.create(connection)


MIGRATIONS: Mapping[int, Callable[[sa.Connection], None]] = {1: _resources_and_order}
"""Version → what makes the next one of it."""


def up_to_date(connection: sa.Connection, where: str) -> bool:
    """Whether the tables are those of this version. Raises StoreError for a store of a newer Weft."""
    version = _version(connection)
    if version is not None and version > VERSION:
        raise StoreError(
            f"the store {where} was made by a newer Weft (its version is {version}, ours {VERSION}): "
            "update Weft, or choose another store with --store or WEFT_STORE"
        )
    return version == VERSION


def bring_up_to_date(connection: sa.Connection, where: str) -> None:
    """Make what is missing and change what is old. The caller's transaction keeps all others waiting."""
    if up_to_date(connection, where):
        return  # somebody else was faster
    version = _version(connection)
    METADATA.create_all(connection, tables=OWN_TABLES, checkfirst=True)
    if version is None:
        connection.execute(schema_version.insert().values(id=1, version=VERSION))
        return
    for step in range(version, VERSION):
        MIGRATIONS[step](connection)
    connection.execute(schema_version.update().values(version=VERSION))


def _version(connection: sa.Connection) -> int | None:
    if not sa.inspect(connection).has_table(schema_version.name):
        return None
    return connection.execute(sa.select(schema_version.c.version)).scalar()

"""Runs, their candidates, and artefacts by content hash."""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from .database import Database, insert_new
from .errors import StoreError
from .keys import content_digest
from .records import CandidateRow, Json, RunRow, RunState
from .schema import artefacts, candidates, runs

MOST_BYTES = 64 << 20
"""Limit of one artefact; larger content belongs in a file."""


class Candidates(Database):
    """Runs and candidates."""

    def start_run(
        self, kind: str, *, task: str, chip: str = "", seed: int = 0, settings: Mapping[str, Json] = {}
    ) -> RunRow:
        """Add a run."""
        values = {
            "kind": kind,
            "task": task,
            "chip": chip,
            "seed": seed,
            "settings": dict(settings),
            "progress": {},
            "state": RunState.RUNNING.value,
        }
        unanswered: list[RunRow] = []

        def step(connection: sa.Connection) -> RunRow:
            for earlier in unanswered:
                found = connection.execute(sa.select(runs).where(runs.c.id == earlier.id)).one_or_none()
                if found is not None and _run(found) == earlier:
                    return earlier
            now = self._time(connection)
            made = connection.execute(runs.insert().values({**values, "created_at": now})).inserted_primary_key
            assert made is not None
            unanswered.append(_run(_one(connection, runs, made[0])))
            return unanswered[-1]

        return self._write(step)

    def run(self, run_id: int) -> RunRow:
        """Return a run by its number."""
        return self._read(lambda connection: _run(_one(connection, runs, run_id)))

    def runs(self) -> tuple[RunRow, ...]:
        """Return all runs, in order."""
        query = sa.select(runs).order_by(runs.c.id)
        return self._read(lambda connection: tuple(_run(row) for row in connection.execute(query)))

    def set_run(self, run_id: int, *, state: str | None = None, progress: Mapping[str, Json] | None = None) -> RunRow:
        """Change a run's state, or replace what its driver needs to resume."""
        running = state is None or RunState(state) is RunState.RUNNING

        def step(connection: sa.Connection) -> RunRow:
            values: dict[str, Any] = {}
            if state is not None:
                values |= {"state": state, "finished_at": None if running else self._time(connection)}
            if progress is not None:
                values["progress"] = dict(progress)
            if values:
                connection.execute(runs.update().where(runs.c.id == run_id).values(values))
            return _run(_one(connection, runs, run_id))

        return self._write(step)

    def add_candidate(
        self,
        run_id: int,
        *,
        digest: str,
        source: str,
        language: str = "cuda",
        launch: str = "",
        defines: Mapping[str, str] = {},
        parents: Sequence[int] = (),
        levers: Mapping[str, Json] = {},
        generation: int = 0,
        proposer: str = "",
        notes: Mapping[str, Json] = {},
    ) -> CandidateRow:
        """Return the run's candidate with this digest: the existing row, or a new one."""

        def step(connection: sa.Connection) -> CandidateRow:
            values = {
                "run_id": run_id,
                "digest": digest,
                "source_digest": self._put(connection, source.encode(), "source"),
                "language": language,
                "launch": launch,
                "defines": dict(defines),
                "parents": list(parents),
                "levers": dict(levers),
                "generation": generation,
                "proposer": proposer,
                "notes": dict(notes),
                "created_at": self._time(connection),
            }
            insert_new(connection, candidates, values)
            same = (candidates.c.run_id == run_id) & (candidates.c.digest == digest)
            return _candidate(connection.execute(sa.select(candidates).where(same)).one())

        return self._write(step)

    def candidate(self, candidate_id: int) -> CandidateRow:
        """Return a candidate by its number."""
        return self._read(lambda connection: _candidate(_one(connection, candidates, candidate_id)))

    def candidates(self, run_id: int) -> tuple[CandidateRow, ...]:
        """Return the candidates of a run, in the order of their proposal."""
        return self._candidates(candidates.c.run_id == run_id)

    def with_canonical(self, run_id: int, canonical: str) -> tuple[CandidateRow, ...]:
        """Return the candidates of a run with this canonical PTX."""
        return self._candidates((candidates.c.run_id == run_id) & (candidates.c.canonical == canonical))

    def set_canonical(self, candidate_id: int, canonical: str) -> None:
        """Set the hash of its canonical PTX."""
        self._set_candidate(candidate_id, {"canonical": canonical})

    def set_notes(self, candidate_id: int, notes: Mapping[str, Json]) -> None:
        """Replace its notes."""
        self._set_candidate(candidate_id, {"notes": dict(notes)})

    def put(self, content: bytes, *, kind: str = "") -> str:
        """Store bytes under the hash of their content; return the hash."""
        return self._write(lambda connection: self._put(connection, content, kind))

    def get(self, digest: str) -> bytes:
        """Return the bytes of a hash."""
        query = sa.select(artefacts.c.packed).where(artefacts.c.digest == digest)
        packed = self._read(lambda connection: connection.execute(query).scalar())
        if packed is None:
            raise StoreError(f"the store {self.where} has no artefact {digest}")
        try:
            content = zlib.decompress(packed)
        except zlib.error as error:
            raise StoreError(f"the store {self.where}: artefact {digest} is damaged") from error
        if content_digest(content) != digest:
            raise StoreError(f"the store {self.where}: artefact {digest} is damaged")
        return content

    def text(self, digest: str) -> str:
        """Return the content of a hash as text."""
        return self.get(digest).decode()

    def _put(self, connection: sa.Connection, content: bytes, kind: str) -> str:
        if len(content) > MOST_BYTES:
            raise StoreError(f"an artefact has {len(content)} bytes, but the limit is {MOST_BYTES}")
        digest = content_digest(content)
        values = {
            "digest": digest,
            "kind": kind,
            "size_bytes": len(content),
            "packed": zlib.compress(content),
            "created_at": self._time(connection),
        }
        insert_new(connection, artefacts, values)
        return digest

    def _candidates(self, which: sa.ColumnElement[bool]) -> tuple[CandidateRow, ...]:
        query = sa.select(candidates).where(which).order_by(candidates.c.id)
        return self._read(lambda connection: tuple(_candidate(row) for row in connection.execute(query)))

    def _set_candidate(self, candidate_id: int, values: Mapping[str, Json]) -> None:
        def step(connection: sa.Connection) -> None:
            _one(connection, candidates, candidate_id)
            connection.execute(candidates.update().where(candidates.c.id == candidate_id).values(values))

        self._write(step)


def _one(connection: sa.Connection, table: sa.Table, number: int) -> sa.Row[Any]:
    row = connection.execute(sa.select(table).where(table.c.id == number)).one_or_none()
    if row is None:
        raise StoreError(f"there is no {table.name.removesuffix('s')} {number}")
    return row


def _run(row: sa.Row[Any]) -> RunRow:
    return RunRow(**row._mapping)


def _candidate(row: sa.Row[Any]) -> CandidateRow:
    return CandidateRow(**{**row._mapping, "parents": tuple(row.parents)})

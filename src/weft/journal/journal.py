"""The journal in the store: each change is one transaction; computed values are not stored."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, Table, insert, select, update

from weft.core.errors import UsageError
from weft.store import schema
from weft.store.store import Store

from .checkpoints import Checkpoint
from .costs import Account
from .ledger import Ledger, add_up
from .records import (
    Block,
    Book,
    CommandRun,
    Entry,
    GoOn,
    KernelVersion,
    Kind,
    MachineRun,
    Plan,
    Rate,
    ShapeResult,
    Texts,
    Use,
)

Row = Mapping[str, Any]


class Journal:
    """Reads and writes the journal of one store, with the store's clock."""

    def __init__(self, store: Store) -> None:
        self._store = store
        store.create(*schema.JOURNAL_TABLES)

    def now(self) -> datetime:
        return self._store.now()

    def read(self) -> Book:
        with self._store.reading() as connection:
            return _read(connection)

    def ledger(self) -> Ledger:
        return add_up(self.read(), self._store.now())

    def set_currency(self, symbol: str) -> None:
        """Set the currency symbol. Amounts are not converted, so it cannot change once there are amounts."""
        with self._store.begin() as connection:
            book = _read(connection)
            if symbol == book.currency:
                return
            if book.rates or book.blocks or book.machines or book.entries or not book.budget.empty:
                raise UsageError(f"this journal uses {book.currency}; set WEFT_STORE to start another journal")
            _set(connection, "currency", symbol)

    def set_rate(self, kind: Kind, name: str, amount: Decimal) -> Rate:
        rate = Rate(kind, name, amount, self._store.now())
        row = {"kind": str(kind), "name": name, "amount": str(amount), "since": rate.since}
        with self._store.begin() as connection:
            connection.execute(insert(schema.journal_rates).values(row))
        return rate

    def set_budget(self, plan: Plan) -> None:
        with self._store.begin() as connection:
            _set(connection, "budget", _plan_row(plan))

    def start(self, title: str, plan: Plan) -> Block:
        """Begin a working block. Only one may be open, because blocks share one engineer."""
        now = self._store.now()
        with self._store.begin() as connection:
            under_way = _read(connection).open_block
            if under_way is not None:
                raise UsageError(
                    f"block {under_way.number} ({under_way.title}) is still open: end it with weft journal stop"
                )
            return _write_block(connection, Block(0, title, now, None, plan))

    def stop(self, *, engineer: int | None = None) -> Block:
        """End the open block; `engineer` replaces the clock's seconds."""
        now = self._store.now()
        with self._store.begin() as connection:
            block = _read(connection).open_block
            if block is None:
                raise UsageError("no block is open: begin one with weft journal start TITLE")
            change = {"stopped": now, "engineer": engineer}
            connection.execute(
                update(schema.journal_blocks).where(schema.journal_blocks.c.id == block.number).values(change)
            )
        return replace(block, stopped=now, engineer=engineer)

    def write_block(self, block: Block) -> Block:
        """Record a finished block from another log; return it with its number."""
        with self._store.begin() as connection:
            return _write_block(connection, block)

    def enter(self, entry: Entry) -> Entry:
        """Record an iteration; return it with its number. An entry without a block belongs to the open one."""
        with self._store.begin() as connection:
            book = _read(connection)
            if entry.block is None:
                entry = replace(entry, block=book.open_block.number if book.open_block else None)
            elif entry.block not in {block.number for block in book.blocks}:
                raise UsageError(f"there is no block {entry.block}: weft journal list shows them")
            number = _insert(connection, schema.journal_entries, _entry_row(entry))
            _write_uses(connection, entry.uses, {"entry": number})
        return replace(entry, number=number)

    def amend(self, number: int, texts: Mapping[str, str], *, spent: int | None, uses: Sequence[Use]) -> Entry:
        """Replace the given texts, add uses, and record the time of the change."""
        now = self._store.now()
        with self._store.begin() as connection:
            entry = next((entry for entry in _read(connection).entries if entry.number == number), None)
            if entry is None:
                raise UsageError(f"there is no entry {number}: weft journal list shows them")
            entry = replace(entry, texts=replace(entry.texts, **texts), spent=entry.spent if spent is None else spent)
            change = {"texts": asdict(entry.texts), "spent": entry.spent, "amended": now}
            connection.execute(
                update(schema.journal_entries).where(schema.journal_entries.c.id == number).values(change)
            )
            _write_uses(connection, uses, {"entry": number})
        return replace(entry, uses=(*entry.uses, *uses), amended=now)

    def go_on(self, why: str) -> tuple[str, ...]:
        """Continue after every checkpoint that was reached; return their texts."""
        now = self._store.now()
        with self._store.begin() as connection:
            ledger = add_up(_read(connection), now)
            block = ledger.open_block
            answered: list[tuple[int | None, Account, tuple[Checkpoint, ...]]] = []
            if ledger.stops:
                answered.append((None, ledger.total, ledger.stops))
            if block is not None and block.stops:
                answered.append((block.block.number, block.account, block.stops))
            for number, account, _ in answered:
                row = {"block": number, "at": now, "seconds": account.seconds, "why": why}
                connection.execute(insert(schema.journal_go_ons).values(row | {"money": str(account.money)}))
        return tuple(stop.text for _, _, stops in answered for stop in stops)

    def start_machine(self, name: str, *, gpu: str, rate: Decimal | None) -> MachineRun:
        machine = MachineRun(name, gpu, rate, self._store.now(), None)
        row = {"name": name, "gpu": gpu, "rate": _money_text(rate), "started": machine.started}
        with self._store.begin() as connection:
            if name in {other.name for other in _read(connection).running}:
                raise UsageError(f"{name} is running already: weft journal machine stop {name} when it is stopped")
            connection.execute(insert(schema.journal_machines).values(row))
        return machine

    def stop_machine(self, name: str) -> MachineRun:
        now = self._store.now()
        with self._store.begin() as connection:
            running = {machine.name: machine for machine in _read(connection).running}
            if name not in running:
                known = ", ".join(running) or "none"
                raise UsageError(f"{name} is not registered as running (running: {known})")
            open_one = (schema.journal_machines.c.name == name) & schema.journal_machines.c.stopped.is_(None)
            connection.execute(update(schema.journal_machines).where(open_one).values(stopped=now))
        return replace(running[name], stopped=now)


def _read(connection: Connection) -> Book:
    def rows(table: Table) -> list[Row]:
        return [dict(row._mapping) for row in connection.execute(select(table).order_by(*table.primary_key.columns))]

    of_block: dict[int, list[Row]] = defaultdict(list)
    of_entry: dict[int, list[Row]] = defaultdict(list)
    for use in rows(schema.journal_uses):
        (of_block if use["entry"] is None else of_entry)[use["block"] or use["entry"]].append(use)
    settings = {row["name"]: row["value"] for row in rows(schema.journal_settings)}
    return Book(
        currency=settings.get("currency", "$"),
        rates=tuple(map(_rate_of, rows(schema.journal_rates))),
        blocks=tuple(_block_of(row, of_block[row["id"]]) for row in rows(schema.journal_blocks)),
        entries=tuple(_entry_of(row, of_entry[row["id"]]) for row in rows(schema.journal_entries)),
        machines=tuple(map(_machine_of, rows(schema.journal_machines))),
        go_ons=tuple(map(_go_on_of, rows(schema.journal_go_ons))),
        budget=_plan_of(settings["budget"]) if "budget" in settings else Plan(),
    )


def _set(connection: Connection, name: str, value: object) -> None:
    connection.execute(schema.journal_settings.delete().where(schema.journal_settings.c.name == name))
    connection.execute(insert(schema.journal_settings).values(name=name, value=value))


def _write_block(connection: Connection, block: Block) -> Block:
    row = {
        "title": block.title,
        "started": block.started,
        "stopped": block.stopped,
        "plan": _plan_row(block.plan),
        "clocked": block.clocked,
        "engineer": block.engineer,
        "booked_sum": _money_text(block.booked_sum),
    }
    number = _insert(connection, schema.journal_blocks, row)
    _write_uses(connection, block.uses, {"block": number})
    return replace(block, number=number)


def _write_uses(connection: Connection, uses: Sequence[Use], owner: Mapping[str, int]) -> None:
    for use in uses:
        connection.execute(insert(schema.journal_uses).values({**_use_row(use), **owner}))


def _insert(connection: Connection, table: Table, row: Mapping[str, object]) -> int:
    key = connection.execute(insert(table).values(row)).inserted_primary_key
    if key is None:
        raise RuntimeError(f"the database returned no number for {table.name}")
    return int(key[0])


def _plan_row(plan: Plan) -> dict[str, object]:
    return {
        "seconds": plan.seconds,
        "money": _money_text(plan.money),
        "ask_seconds": list(plan.ask_seconds),
        "ask_money": [str(amount) for amount in plan.ask_money],
    }


def _plan_of(row: Row) -> Plan:
    asks = tuple(Decimal(amount) for amount in row["ask_money"])
    return Plan(row["seconds"], _money(row["money"]), tuple(row["ask_seconds"]), asks)


def _entry_row(entry: Entry) -> dict[str, object]:
    """Return the row without its number and its uses, which have separate tables."""
    return {
        "at": entry.at,
        "kind": entry.kind,
        "block": entry.block,
        "texts": asdict(entry.texts),
        "shapes": [[each.shape, each.text] for each in entry.shapes],
        "run": None if entry.run is None else asdict(entry.run),
        "spent": entry.spent,
    }


def _entry_of(row: Row, uses: Iterable[Row]) -> Entry:
    run = row["run"]
    return Entry(
        number=row["id"],
        at=row["at"],
        kind=row["kind"],
        texts=Texts(**row["texts"]),
        block=row["block"],
        shapes=tuple(ShapeResult(*each) for each in row["shapes"]),
        run=None if run is None else _run_of(run),
        spent=row["spent"],
        uses=_uses_of(uses),
        amended=row["amended"],
    )


def _run_of(row: Row) -> CommandRun:
    """Return the command. Old entries have no kernels and no commit."""
    kernels = tuple(
        KernelVersion(each["path"], each["digest"], tuple(each["estimate"]) if each["estimate"] else None)
        for each in row.get("kernels", ())
    )
    return CommandRun(**{**row, "words": tuple(row["words"]), "kernels": kernels})


def _block_of(row: Row, uses: Iterable[Row]) -> Block:
    return Block(
        number=row["id"],
        title=row["title"],
        started=row["started"],
        stopped=row["stopped"],
        plan=_plan_of(row["plan"]),
        clocked=row["clocked"],
        engineer=row["engineer"],
        uses=_uses_of(uses),
        booked_sum=_money(row["booked_sum"]),
    )


def _use_row(use: Use) -> dict[str, object]:
    return {"kind": str(use.kind), "name": use.name, "quantity": use.quantity, "booked": _money_text(use.booked)}


def _uses_of(rows: Iterable[Row]) -> tuple[Use, ...]:
    return tuple(Use(Kind(row["kind"]), row["name"], row["quantity"], _money(row["booked"])) for row in rows)


def _rate_of(row: Row) -> Rate:
    return Rate(Kind(row["kind"]), row["name"], Decimal(row["amount"]), row["since"])


def _machine_of(row: Row) -> MachineRun:
    return MachineRun(row["name"], row["gpu"], _money(row["rate"]), row["started"], row["stopped"])


def _go_on_of(row: Row) -> GoOn:
    return GoOn(row["block"], row["at"], row["seconds"], Decimal(row["money"]), row["why"])


def _money_text(amount: Decimal | None) -> str | None:
    return None if amount is None else str(amount)


def _money(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)

"""Records to rows of the store and back."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from .records import Block, CommandRun, Entry, GoOn, Kind, MachineRun, Plan, Rate, ShapeResult, Texts, Use

Row = Mapping[str, Any]


def plan_row(plan: Plan) -> dict[str, object]:
    return {
        "seconds": plan.seconds,
        "money": money_text(plan.money),
        "ask_seconds": list(plan.ask_seconds),
        "ask_money": [str(amount) for amount in plan.ask_money],
    }


def plan_of(row: Row) -> Plan:
    asks = tuple(Decimal(amount) for amount in row["ask_money"])
    return Plan(row["seconds"], _money(row["money"]), tuple(row["ask_seconds"]), asks)


def entry_row(entry: Entry) -> dict[str, object]:
    """Without its number and its uses, which have tables of their own."""
    return {
        "at": entry.at,
        "kind": entry.kind,
        "block": entry.block,
        "texts": asdict(entry.texts),
        "shapes": [[each.shape, each.text] for each in entry.shapes],
        "run": None if entry.run is None else asdict(entry.run),
        "spent": entry.spent,
    }


def entry_of(row: Row, uses: Iterable[Row]) -> Entry:
    run = row["run"]
    return Entry(
        number=row["id"],
        at=row["at"],
        kind=row["kind"],
        texts=Texts(**row["texts"]),
        block=row["block"],
        shapes=tuple(ShapeResult(*each) for each in row["shapes"]),
        run=None if run is None else CommandRun(**{**run, "words": tuple(run["words"])}),
        spent=row["spent"],
        uses=uses_of(uses),
        amended=row["amended"],
    )


def block_of(row: Row, uses: Iterable[Row]) -> Block:
    return Block(
        number=row["id"],
        title=row["title"],
        started=row["started"],
        stopped=row["stopped"],
        plan=plan_of(row["plan"]),
        clocked=row["clocked"],
        engineer=row["engineer"],
        uses=uses_of(uses),
        booked_sum=_money(row["booked_sum"]),
    )


def use_row(use: Use) -> dict[str, object]:
    return {"kind": str(use.kind), "name": use.name, "quantity": use.quantity, "booked": money_text(use.booked)}


def uses_of(rows: Iterable[Row]) -> tuple[Use, ...]:
    return tuple(Use(Kind(row["kind"]), row["name"], row["quantity"], _money(row["booked"])) for row in rows)


def rate_of(row: Row) -> Rate:
    return Rate(Kind(row["kind"]), row["name"], Decimal(row["amount"]), row["since"])


def machine_of(row: Row) -> MachineRun:
    return MachineRun(row["name"], row["gpu"], _money(row["rate"]), row["started"], row["stopped"])


def go_on_of(row: Row) -> GoOn:
    return GoOn(row["block"], row["at"], row["seconds"], Decimal(row["money"]), row["why"])


def money_text(amount: Decimal | None) -> str | None:
    return None if amount is None else str(amount)


def _money(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)

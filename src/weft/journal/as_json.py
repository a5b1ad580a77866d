"""A ledger as plain JSON. Money is a decimal string, because a float is not exact."""

from dataclasses import asdict
from decimal import Decimal

from .amounts import cents
from .costs import Account
from .ledger import BlockAccount, Iteration, Ledger, MachineAccount
from .records import Plan
from .view import stop_lines, summary_line, warning_lines

Record = dict[str, object]


def ledger_record(ledger: Ledger) -> Record:
    """Everything."""
    return {
        "now": ledger.now.isoformat(),
        "currency": ledger.book.currency,
        "rates": [
            {
                "kind": str(rate.kind),
                "name": rate.name,
                "amount": str(rate.amount),
                "per": rate.unit,
                "since": rate.since.isoformat(),
            }
            for rate in ledger.book.rates
        ],
        "budget": _plan(ledger.book.budget),
        "blocks": [block_record(block) for block in ledger.blocks],
        "outside": _account(ledger.outside) | {"entries": [entry_record(each) for each in ledger.loose]},
        "total": _account(ledger.total),
        **state_record(ledger),
    }


def state_record(ledger: Ledger) -> Record:
    """Return the part that every answer of the journal has."""
    return {
        "machines": [machine_record(machine) for machine in ledger.running],
        "checkpoints": stop_lines(ledger),
        "warnings": warning_lines(ledger),
        "summary": summary_line(ledger),
    }


def block_record(each: BlockAccount) -> Record:
    block = each.block
    return {
        "number": block.number,
        "title": block.title,
        "started": block.started.isoformat(),
        "stopped": block.stopped.isoformat() if block.stopped else None,
        "clocked": block.clocked,
        **_account(each.account),
        "wrong_sums": [
            {"what": wrong.what, "booked": _money(wrong.booked), "right": _money(wrong.right), "text": wrong.text}
            for wrong in each.wrong
        ],
        "checkpoints": [stop.text for stop in each.stops],
        "entries": [entry_record(iteration) for iteration in each.iterations],
    }


def entry_record(iteration: Iteration) -> Record:
    entry = iteration.entry
    return {
        "number": entry.number,
        "at": entry.at.isoformat(),
        "kind": entry.kind,
        "block": entry.block,
        **asdict(entry.texts),
        "shapes": {each.shape: each.text for each in entry.shapes},
        "run": None if entry.run is None else asdict(entry.run),
        "spent_seconds": iteration.spent,
        "cost": _money(iteration.account.money),
        "costs": _lines(iteration.account),
        "amended": entry.amended.isoformat() if entry.amended else None,
    }


def machine_record(account: MachineAccount) -> Record:
    machine = account.machine
    return {
        "name": machine.name,
        "gpu": machine.gpu,
        "started": machine.started.isoformat(),
        "stopped": machine.stopped.isoformat() if machine.stopped else None,
        "seconds": account.seconds,
        "cost": _money(account.cost),
    }


def _account(account: Account) -> Record:
    return {
        "plan": _plan(account.plan),
        "seconds": account.seconds,
        "gpu_seconds": account.gpu_seconds,
        "tokens": account.tokens,
        "money": _money(account.money),
        "booked_sum": _money(account.booked_sum),
        "unpriced": list(account.unpriced),
        "costs": _lines(account),
    }


def _lines(account: Account) -> list[Record]:
    return [
        {
            "kind": str(line.kind),
            "name": line.name,
            "quantity": line.quantity,
            "origin": line.origin,
            "rate": None if line.rate is None else str(line.rate),
            "cost": _money(line.amount),
            "booked": _money(line.booked),
        }
        for line in account.lines
    ]


def _plan(plan: Plan) -> Record:
    return {"seconds": plan.seconds, "money": _money(plan.money)}


def _money(amount: Decimal | None) -> str | None:
    return None if amount is None else str(cents(amount))

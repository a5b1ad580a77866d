"""Parse what was used and booked from the options of a command line."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from weft.core.errors import UsageError

from .amounts import parse_money, parse_seconds, parse_tokens
from .records import Kind, Use


def parse_uses(
    *,
    engineer: str | None = None,
    gpu: Sequence[str] = (),
    tokens: Sequence[str] = (),
    booked: Sequence[str] = (),
    currency: str,
) -> tuple[tuple[Use, ...], Decimal | None]:
    """Parse `47m`, `l4=1.5h`, `120k` and the amounts booked for them: `gpu=0.60`, `l4=0.60`, `sum=39.77`.

    Return the uses and the booked sum.
    """
    uses = [] if engineer is None else [Use(Kind.ENGINEER, "", parse_seconds(engineer))]
    uses += [Use(Kind.GPU, name, parse_seconds(value)) for name, value in map(split_name, gpu)]
    uses += [Use(Kind.TOKENS, name, parse_tokens(value)) for name, value in map(split_name, tokens)]
    total = None
    for text in booked:
        name, value = split_name(text)
        amount = parse_money(value, currency)
        if name in ("sum", "total"):
            total = amount
            continue
        matches = [at for at, use in enumerate(uses) if name in (str(use.kind), use.name)]
        if not name or len(matches) != 1:
            known = ", ".join(use.name or str(use.kind) for use in uses) or "nothing"
            raise UsageError(f"--booked {text}: name something that was used ({known}) or sum, as in gpu=0.60")
        uses[matches[0]] = replace(uses[matches[0]], booked=amount)
    return tuple(uses), total


def split_name(text: str) -> tuple[str, str]:
    """Split `l4=1.5h`; without a name, the name is empty."""
    name, sign, value = text.rpartition("=")
    if sign and not name.strip():
        raise UsageError(f"{text!r}: give it as NAME=VALUE")
    return name.strip(), value.strip()

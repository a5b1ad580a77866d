"""Misuse of the attention contract."""

from weft.core.errors import UsageError


class ContractError(UsageError, ValueError):
    """An argument outside the contract: a shape that does not fit, an undefined name."""

"""What can go wrong with the store. Every message says which store, and what to do."""

from weft.core.errors import WeftError


class StoreError(WeftError):
    """The store cannot be opened, read or written, or does not hold what was asked for."""


class Fenced(StoreError):
    """The lease ran out and somebody else has the evaluation now: what this worker found does not count."""


class NotCacheable(StoreError):
    """The status says something of the machine or of the clock, not of the candidate: it must not become a verdict."""

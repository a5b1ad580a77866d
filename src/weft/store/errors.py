"""Errors of the store. Every message names the store and what to do."""

from weft.core.errors import WeftError


class StoreError(WeftError):
    """The store cannot be opened, read or written, or does not have what was requested."""


class Fenced(StoreError):
    """The lease expired and another worker has the evaluation now: this worker's result does not count."""


class NotCacheable(StoreError):
    """The status depends on the machine or the clock, not on the candidate: it must not become a verdict."""

"""What can go wrong with a fleet."""

from weft.core.errors import WeftError


class FleetError(WeftError):
    """The fleet cannot work. The message says why."""

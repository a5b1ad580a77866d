"""For all tests: how Hypothesis behaves on machines that are busy."""

from hypothesis import HealthCheck, settings

# Seconds say nothing of a strategy on a shared machine; examples are counted, not timed.
settings.register_profile("weft", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("weft")

"""Barriers in shared memory (PTX ISA 9.7.13.15): those of the own CTA. `.relaxed` arrivals and waits are not here."""

from dataclasses import replace
from functools import partial

from .facts import COMPUTES, Access, Facts
from .form import Form, form

_WORD = partial(Access, address="a", width=8, only="shared", holds="mbarrier")
_WRITES, _COUNTS, _TESTS = ((_WORD(verb),) for verb in ("store", "atomic", "load"))
# `inval` orders nothing, but other uses may be close: libcu++ lets one lane do it for its warp, after a match.sync.
# Arriving releases what the thread wrote; a test that finds its phase complete acquires.
_arrive = partial(form, "mbarrier", Facts(result="lane", accesses=_COUNTS, order="release"))
_test = partial(form, "mbarrier", Facts(result="lane", accesses=_TESTS, order="acquire"))
_init = partial(form, "mbarrier", Facts(accesses=_WRITES))
_inval = partial(form, "mbarrier", Facts(accesses=_WRITES, order="relaxed"))
_land = partial(form, "mbarrier", Facts(accesses=_COUNTS, order="release", settles="cp.async"))
_count = partial(form, "mbarrier", COMPUTES)
_ARRIVES = Facts(result="lane", accesses=_COUNTS, order="release", target="sm_90")
_arrive_sm_90 = partial(form, "mbarrier", _ARRIVES)
_try = partial(form, "mbarrier", replace(_ARRIVES, accesses=_TESTS, order="acquire"))
_bytes = partial(form, "mbarrier", Facts(accesses=_COUNTS, order="relaxed", target="sm_90"))
_PLACE = {"space": "shared shared::cta"}
_RELEASE = {"sem": "release", "scope": "cta cluster", **_PLACE}
# Those of another CTA take arrivals and bytes, and return no state.
_PEER = {"order": "release relaxed", "scope": "cta cluster"}
_ACQUIRE = {"sem": "acquire", "scope": "cta cluster", **_PLACE}
_RELAXED = {"sem": "relaxed", "scope": "cta cluster", "space": "shared shared::cta shared::cluster"}
_BYTES = "{.sem}{.scope}{.space}.b64"

ROWS: tuple[Form, ...] = (
    _init("9.7.13.15.9", "mbarrier.init{.space}.b64 [a], count:u32", **_PLACE),
    _inval("9.7.13.15.10", "mbarrier.inval{.space}.b64 [a]", **_PLACE),
    _arrive("9.7.13.15.13", "mbarrier.arrive{.sem}{.scope}{.space}.b64 d, [a]; count:u32", **_RELEASE),
    _arrive("9.7.13.15.13", "mbarrier.arrive.noComplete{.sem}{.scope}{.space}.b64 d, [a], count:u32", **_RELEASE),
    _arrive("9.7.13.15.14", "mbarrier.arrive_drop{.sem}{.scope}{.space}.b64 d, [a]; count:u32", **_RELEASE),
    _arrive("9.7.13.15.14", "mbarrier.arrive_drop.noComplete{.sem}{.scope}{.space}.b64 d, [a], count:u32", **_RELEASE),
    _land("9.7.13.15.15", "cp.async.mbarrier.arrive{.noinc}{.space}.b64 [a]", **_PLACE),
    _test("9.7.13.15.16", "mbarrier.test_wait{.sem}{.scope}{.space}.b64 p:pred, [a], state:b64", **_ACQUIRE),
    _test("9.7.13.15.16", "mbarrier.test_wait.parity{.sem}{.scope}{.space}.b64 p:pred, [a], odd:u32", **_ACQUIRE),
    # It may suspend the thread until the time is over; a test that returns false at once is one of its results.
    _try("9.7.13.15.16", f"mbarrier.try_wait{_BYTES} p:pred, [a], state:b64; time:u32", **_ACQUIRE),
    _try("9.7.13.15.16", f"mbarrier.try_wait.parity{_BYTES} p:pred, [a], odd:u32; time:u32", **_ACQUIRE),
    _bytes("9.7.13.15.11", f"mbarrier.expect_tx{_BYTES} [a], bytes:u32", **_RELAXED),
    _bytes("9.7.13.15.12", f"mbarrier.complete_tx{_BYTES} [a], bytes:u32", **_RELAXED),
    _arrive_sm_90("9.7.13.15.13", f"mbarrier.arrive.expect_tx{_BYTES} d, [a], bytes:u32", **_RELEASE),
    _arrive_sm_90("9.7.13.15.14", f"mbarrier.arrive_drop.expect_tx{_BYTES} d, [a], bytes:u32", **_RELEASE),
    *(_arrive_sm_90("9.7.13.15.13", f"mbarrier.{word}{{.order}}{{.scope}}.space.b64 d, [a]; count:u32",
       space="shared::cluster", **_PEER) for word in ("arrive", "arrive_drop")),
    *(_arrive_sm_90("9.7.13.15.13", f"mbarrier.{word}.expect_tx{{.order}}{{.scope}}.space.b64 d, [a], bytes:u32",
       space="shared::cluster", **_PEER) for word in ("arrive", "arrive_drop")),
    _count("9.7.13.15.17", "mbarrier.pending_count.b64 d:u32, state:b64"),
)  # fmt: skip

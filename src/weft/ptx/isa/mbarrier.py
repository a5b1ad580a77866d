"""Barriers in shared memory (PTX ISA 9.7.13.15), as sm_80 to sm_89 have them: no transactions, no try_wait."""

from functools import partial

from .form import Form, form

_f = partial(form, "mbarrier")
_PLACE = {"space": "shared shared::cta"}
_RELEASE = {"sem": "release", "scope": "cta", **_PLACE}
_ACQUIRE = {"sem": "acquire", "scope": "cta", **_PLACE}

ROWS: tuple[Form, ...] = (
    _f("9.7.13.15.9", "mbarrier.init{.space}.b64 [a], count:u32", **_PLACE),
    _f("9.7.13.15.10", "mbarrier.inval{.space}.b64 [a]", **_PLACE),
    _f("9.7.13.15.13", "mbarrier.arrive{.sem}{.scope}{.space}.b64 d, [a]; count:u32", **_RELEASE),
    _f("9.7.13.15.13", "mbarrier.arrive.noComplete{.sem}{.scope}{.space}.b64 d, [a], count:u32", **_RELEASE),
    _f("9.7.13.15.14", "mbarrier.arrive_drop{.sem}{.scope}{.space}.b64 d, [a]; count:u32", **_RELEASE),
    _f("9.7.13.15.14", "mbarrier.arrive_drop.noComplete{.sem}{.scope}{.space}.b64 d, [a], count:u32", **_RELEASE),
    _f("9.7.13.15.15", "cp.async.mbarrier.arrive{.noinc}{.space}.b64 [a]", **_PLACE),
    _f("9.7.13.15.16", "mbarrier.test_wait{.sem}{.scope}{.space}.b64 p:pred, [a], state:b64", **_ACQUIRE),
    _f("9.7.13.15.16", "mbarrier.test_wait.parity{.sem}{.scope}{.space}.b64 p:pred, [a], odd:u32", **_ACQUIRE),
    _f("9.7.13.15.17", "mbarrier.pending_count.b64 d:u32, state:b64"),
)

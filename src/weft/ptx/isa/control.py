"""Control flow (PTX ISA 9.7.12) and miscellaneous instructions (9.7.19)."""

from functools import partial

from .form import Form, form

_f = partial(form, "control")

ROWS: tuple[Form, ...] = (
    _f("9.7.12.3", "bra{.uni} @target"),
    _f("9.7.12.4", "brx.idx{.uni} index:u32, @targets"),
    _f("9.7.12.5", "call{.uni} *ret, func, *args; prototype"),
    _f("9.7.12.6", "ret{.uni}"),
    _f("9.7.12.7", "exit"),
    _f("9.7.19.1", "brkpt"),
    _f("9.7.19.5", "trap"),
    _f("9.7.19.2", "nanosleep.u32 t"),
    _f("9.7.19.3", "pmevent a:u32"),
)

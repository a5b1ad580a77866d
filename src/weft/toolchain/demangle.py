"""Itanium-mangled kernel names → the name as the user writes it, and the types of its parameters.

Supports (nested) names and template arguments that are literals or types. Any other name stays mangled. The compiler
resolves macros, typedefs and template parameters before it mangles, so the types here are those of the kernel.
"""

import functools

_BUILTIN = {
    "b": "bool",
    "c": "char",
    "a": "signed char",
    "h": "unsigned char",
    "s": "short",
    "t": "unsigned short",
    "i": "int",
    "j": "unsigned int",
    "l": "long",
    "m": "unsigned long",
    "x": "long long",
    "y": "unsigned long long",
    "f": "float",
    "d": "double",
}
_QUALIFIER = {"K": "const", "V": "volatile"}
_SUFFIX = {"i": "", "j": "u", "l": "l", "m": "ul", "x": "ll", "y": "ull"}


class _Unknown(Exception):
    """A construct that this reader does not support."""


class _Reader:
    def __init__(self, text: str, *, anonymous: bool = False) -> None:
        self.text = text
        self.at = 0
        self.anonymous = anonymous
        """Whether the name may be in an anonymous namespace, which has no spelling."""
        self.known: list[str] = []
        """What `S_`, `S0_` and so on mean: every name and compound type so far, in the order of its end."""
        self.given: list[str] = []
        """Template arguments of the function, which `T_`, `T0_` and so on name."""

    def take(self, token: str) -> bool:
        found = self.text.startswith(token, self.at)
        self.at += len(token) if found else 0
        return found

    def digits(self) -> str:
        start = self.at
        while self.text[self.at : self.at + 1].isdigit():
            self.at += 1
        if start == self.at:
            raise _Unknown
        return self.text[start : self.at]

    def source_name(self) -> str:
        length = int(self.digits())
        name = self.text[self.at : self.at + length]
        if len(name) != length or (name.startswith("_GLOBAL__N") and not self.anonymous):
            raise _Unknown
        self.at += length
        while self.take("B"):  # a tag behind the name: numba-cuda writes the version of the function there
            tag_length = int(self.digits())
            self.at += tag_length
        return name

    def name(self, *, is_type: bool = False) -> str:
        if self.take("N"):
            return self.nested_name(is_type=is_type)
        self.take("L")  # internal linkage
        plain = self.source_name()
        if not self.take("I"):
            return self.keep(plain) if is_type else plain
        self.keep(plain)
        whole = plain + self.arguments(of_function=not is_type)
        return self.keep(whole) if is_type else whole

    def nested_name(self, *, is_type: bool) -> str:
        """Read a nested name. Every prefix can be named again; the complete name only if it is a type."""
        whole = ""
        while True:
            if self.take("I"):
                whole += self.arguments(of_function=not is_type)
            elif self.take("S"):
                whole = self.substitution()
                continue
            else:
                whole += ("::" if whole else "") + self.source_name()
            if self.take("E"):
                return self.keep(whole) if is_type else whole
            self.keep(whole)

    def keep(self, text: str) -> str:
        self.known.append(text)
        return text

    def substitution(self) -> str:
        return self.known[self.number_behind_letter()]

    def number_behind_letter(self) -> int:
        """Return `_` → 0, `0_` → 1 and so on, in base 36."""
        end = self.text.find("_", self.at)
        digits = self.text[self.at : end]
        if end < 0 or not all(sign.isdigit() or "A" <= sign <= "Z" for sign in digits):
            raise _Unknown
        self.at = end + 1
        return int(digits, 36) + 1 if digits else 0

    def arguments(self, *, of_function: bool = False) -> str:
        items: list[str] = []
        while not self.take("E"):
            items.append(self.argument())
        if of_function:
            self.given = items
        return f"<{','.join(items)}>"

    def argument(self) -> str:
        if self.take("XT"):  # a number that is a template parameter of the function
            value = self.given[self.number_behind_letter()]
            if not self.take("E"):
                raise _Unknown
            return value
        if not self.take("L"):
            return self.type()
        kind = self.text[self.at : self.at + 1]
        self.at += 1
        if kind != "b" and kind not in _SUFFIX:
            raise _Unknown
        sign = "-" if self.take("n") else ""
        value = self.digits()
        if not self.take("E"):
            raise _Unknown
        return ("false", "true")[int(value)] if kind == "b" else f"{sign}{value}{_SUFFIX[kind]}"

    def type(self) -> str:
        letter = self.text[self.at : self.at + 1]
        if letter in _BUILTIN and letter:
            self.at += 1
            return _BUILTIN[letter]
        if letter.isdigit() or letter == "N":
            return self.name(is_type=True)
        self.at += 1
        if letter == "P":
            return self.keep(f"{self.pointee()}*")
        if letter == "V" and self.take("K"):
            return self.keep(f"const volatile {self.pointee()}")
        if letter in _QUALIFIER:
            return self.keep(f"{_QUALIFIER[letter]} {self.pointee()}")
        if letter == "S":
            return self.substitution()
        if letter == "T":
            return self.keep(self.given[self.number_behind_letter()])
        raise _Unknown

    def pointee(self) -> str:
        return "void" if self.take("v") else self.type()


def demangle(symbol: str) -> str:
    """Return `_Z4attnILi64ELb1EEvPf` as `attn<64,true>`, without parameters; unknown forms are returned unchanged."""
    if not symbol.startswith("_Z"):
        return symbol
    try:
        return _Reader(symbol[2:]).name()
    except (_Unknown, IndexError):
        return symbol


@functools.cache
def parameter_types(symbol: str) -> tuple[str, ...]:
    """Return the types of `_Z4attnILi64EEvPK6__halfPf`, `("const __half*", "float*")`; empty if one is not known."""
    if not symbol.startswith("_Z"):
        return ()
    reader = _Reader(symbol[2:], anonymous=True)
    found: list[str] = []
    try:
        reader.name()
        if reader.given and not reader.take("v"):  # the mangled name of a template includes its return type
            return ()
        while reader.at < len(reader.text):
            if reader.text[reader.at :] == "v":  # no parameters
                return ()
            found.append(reader.type())
    except (_Unknown, IndexError):
        return ()
    return tuple(found)

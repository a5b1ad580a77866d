"""Itanium-mangled kernel names → the name as the user writes it, for names NVRTC makes of plain kernels.

Covers (nested) names and template arguments that are literals or builtin types. Any other name stays mangled.
"""

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
_SUFFIX = {"i": "", "j": "u", "l": "l", "m": "ul", "x": "ll", "y": "ull"}


class _Unknown(Exception):
    """A construct this reader does not know."""


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

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
        if len(name) != length or name.startswith("_GLOBAL__N"):
            raise _Unknown
        self.at += length
        return name

    def name(self) -> str:
        if self.take("N"):
            parts: list[str] = []
            while not self.take("E"):
                if self.take("I"):
                    parts[-1] += self.arguments()
                else:
                    parts.append(self.source_name())
            return "::".join(parts)
        self.take("L")  # internal linkage
        plain = self.source_name()
        return plain + self.arguments() if self.take("I") else plain

    def arguments(self) -> str:
        items: list[str] = []
        while not self.take("E"):
            items.append(self.argument())
        return f"<{','.join(items)}>"

    def argument(self) -> str:
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
        if letter.isdigit():
            return self.name()
        raise _Unknown


def demangle(symbol: str) -> str:
    """`_Z4attnILi64ELb1EEvPf` → `attn<64,true>`, without parameters; unknown forms come back unchanged."""
    if not symbol.startswith("_Z"):
        return symbol
    try:
        return _Reader(symbol[2:]).name()
    except (_Unknown, IndexError):
        return symbol

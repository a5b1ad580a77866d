"""The PTX of cubins that the program compiled: the audit library writes it down when NVRTC or nvJitLink makes one.

A file has the cubin and then its PTX texts, each ended by a NUL; its name is the cubin's size and CRC-32.
"""

import zlib
from pathlib import Path

from weft.core.errors import CompileError, Unsupported
from weft.ptx.link import Unit, link


def noted_ptx(folder: Path, cubin: bytes) -> str:
    """Return the PTX from which a cubin was made, as one text; empty if none is noted."""
    try:
        content = (folder / f"{len(cubin)}-{zlib.crc32(cubin):08x}").read_bytes()
    except OSError:
        return ""
    if not content.startswith(cubin):
        return ""
    texts = [text.decode(errors="replace") for text in content[len(cubin) :].split(b"\0") if text.strip()]
    if len(texts) < 2:
        return "".join(texts)
    try:
        return link([Unit(f"input {number}", text) for number, text in enumerate(texts, 1)])
    except (CompileError, Unsupported):
        return ""  # an input is not PTX: what the cubin's debug section has decides

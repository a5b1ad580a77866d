"""Corrects the source lines inside inline assembly in Triton's PTX.

LLVM advances the source line for every line of an inline assembly's text, but Triton's loads and stores are such texts
of several lines that belong to one line of Python. Before and after:

    .loc 1 14 13                  .loc 1 14 13
    // begin inline asm           // begin inline asm
    .loc 1 14 13                  .loc 1 14 13
    mov.u32 %r1, 0x0;             mov.u32 %r1, 0x0;
    .loc 1 15 13                  .loc 1 14 13
    ld.global.b32 …               ld.global.b32 …
    // end inline asm             // end inline asm
"""


def steady_lines(ptx: str) -> str:
    """Return the PTX with the preceding line for everything inside an inline assembly. No line is added or left out."""
    lines = ptx.split("\n")
    last, inside = "", False
    for at, line in enumerate(lines):
        text = line.strip()
        if text.startswith("// begin inline asm"):
            inside = True
        elif text.startswith("// end inline asm"):
            inside = False
        elif text.startswith(".loc"):
            if inside and last:
                lines[at] = last
            else:
                last = line
    return "\n".join(lines)

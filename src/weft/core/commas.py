"""Splits a text at its commas."""


def split_at_commas(text: str, opening: str, closing: str) -> list[str]:
    """Return what stands between the commas outside of these brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in opening) - (letter in closing)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts

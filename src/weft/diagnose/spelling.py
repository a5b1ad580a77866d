"""Places in the user's words: their own file, as they gave it."""

import os
from dataclasses import replace

from weft.core.records import Place
from weft.engines.kernel_file import KernelFile
from weft.engines.spell_findings import user_place

from .taps import Site


def own_site(site: Site | None, kernel: KernelFile) -> Site | None:
    """With its place out of CUDA's headers."""
    return None if site is None else replace(site, place=own_place(site.place, kernel))


def own_place(place: Place | None, kernel: KernelFile) -> Place | None:
    """Out of CUDA's headers, in the file's own name."""
    return _spelled(user_place(place), kernel.path)


def _spelled(place: Place | None, path: str) -> Place | None:
    if place is None:
        return None
    file = path if place.file == os.path.abspath(path) else place.file
    return replace(place, file=file, inlined_at=_spelled(place.inlined_at, path))

"""Places in the user's file, with the path as the user gave it."""

import os
from dataclasses import replace

from weft.core.records import Place
from weft.engines.kernel_file import KernelFile
from weft.engines.spell_findings import user_place

from .taps import Site


def own_site(site: Site | None, kernel: KernelFile) -> Site | None:
    """Return the site with its place in the user's file, not in CUDA's headers."""
    return None if site is None else replace(site, place=own_place(site.place, kernel))


def own_place(place: Place | None, kernel: KernelFile) -> Place | None:
    """Return the place in the user's file, not in CUDA's headers, with the path as the user gave it."""
    return _spelled(user_place(place), kernel.path)


def _spelled(place: Place | None, path: str) -> Place | None:
    if place is None:
        return None
    file = path if place.file == os.path.abspath(path) else place.file
    return replace(place, file=file, inlined_at=_spelled(place.inlined_at, path))

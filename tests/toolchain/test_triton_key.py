"""Keys of Triton's cache: they follow its files, and are Triton's own again afterwards."""

import os
from pathlib import Path

import triton

from weft.toolchain.triton_key import key_by_times, key_of


def test_a_file_that_is_written_again_changes_the_key(tmp_path: Path) -> None:
    (tmp_path / "_C").mkdir()
    library = tmp_path / "_C" / "libtriton.so"
    library.write_bytes(b"one")
    os.utime(library, ns=(1, 1))
    keys = {key_of.__wrapped__(tmp_path, "3.9")}
    os.utime(library, ns=(2, 2))
    keys.add(key_of.__wrapped__(tmp_path, "3.9"))
    library.write_bytes(b"longer")
    os.utime(library, ns=(2, 2))
    keys.add(key_of.__wrapped__(tmp_path, "3.9"))
    (tmp_path / "language.py").touch()
    keys.add(key_of.__wrapped__(tmp_path, "3.9"))
    keys.add(key_of.__wrapped__(tmp_path, "3.10"))
    assert len(keys) == 5
    assert key_of.__wrapped__(tmp_path, "3.10") in keys


def test_triton_has_its_own_key_afterwards() -> None:
    own = triton.runtime.cache.triton_key
    with key_by_times(triton):
        inside = triton.runtime.cache.triton_key()
    assert inside.startswith(triton.__version__)
    assert triton.runtime.cache.triton_key is own

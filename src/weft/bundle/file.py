"""The file: a zip of a few named members, the same bytes for the same bundle. A file that is read is untrusted.

Nothing is unpacked to a path of the archive: members have fixed names, and all others are refused.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .records import BrokenBundle, Bundle
from .spell import bundle_of, spelled

FORMAT = 2
MOST_BYTES = 16 << 20
"""Limit of the file, and of its unpacked content."""
MANIFEST = "manifest.json"
ANSWER = "answer.json"
TASK = "task.py"
LAUNCH = "kernel.launch"
KERNELS = {"cuda": "kernel.cu", "ptx": "kernel.ptx"}
MEMBERS = (MANIFEST, ANSWER, TASK, LAUNCH, *KERNELS.values())

_TIME = (1980, 1, 1, 0, 0, 0)
"""The earliest date of a zip: a bundle has no dates."""


def pack(bundle: Bundle) -> bytes:
    """Return the bytes of the file. It is not compressed, so the bytes do not depend on the version of zlib."""
    manifest, answer = spelled(bundle)
    texts = {KERNELS[bundle.source.language]: bundle.source.text, ANSWER: _json(answer)}
    if bundle.source.launch:
        texts[LAUNCH] = bundle.source.launch
    if bundle.task_text:
        texts[TASK] = bundle.task_text
    contents = {name: text.encode() for name, text in sorted(texts.items())}
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    whole = {"format": FORMAT, **manifest, "files": digests}
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_STORED) as archive:
        for name, content in {MANIFEST: _json(whole).encode(), **contents}.items():
            row = zipfile.ZipInfo(name, _TIME)
            row.create_system = 3  # always Unix, on every system
            row.external_attr = 0o644 << 16
            archive.writestr(row, content)
    return written.getvalue()


def unpack(content: bytes) -> Bundle:
    """Return the bundle. Raises BrokenBundle for anything that `pack` did not write."""
    members = _members(content)
    for needed in (MANIFEST, ANSWER):
        if needed not in members:
            raise BrokenBundle(f"not a bundle: {needed} is missing")
    manifest = _object(members, MANIFEST)
    version = manifest.get("format")
    if version != FORMAT:
        raise BrokenBundle(f"its format is {version!r}, but this version of Weft reads {FORMAT}: use a newer version")
    stored = {name: hashlib.sha256(data).hexdigest() for name, data in members.items() if name != MANIFEST}
    if manifest.get("files") != stored:
        raise BrokenBundle("damaged: its members are not those of its manifest")
    kernels = [(language, name) for language, name in KERNELS.items() if name in members]
    if len(kernels) != 1:
        raise BrokenBundle("not a bundle: it does not have exactly one kernel")
    language, kernel = kernels[0]
    texts = {name: _text(members, name) for name in (kernel, LAUNCH, TASK) if name in members}
    try:
        return bundle_of(
            manifest,
            _object(members, ANSWER),
            text=texts[kernel],
            language=language,
            launch=texts.get(LAUNCH, ""),
            task_text=texts.get(TASK, ""),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BrokenBundle(f"damaged: {type(error).__name__} {error}") from error


def read(path: Path) -> Bundle:
    """Read a bundle's file."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BrokenBundle(f"cannot read {path}: {error}") from error
    try:
        return unpack(content)
    except BrokenBundle as error:
        raise BrokenBundle(f"{path}: {error}") from error


def _members(content: bytes) -> dict[str, bytes]:
    if len(content) > MOST_BYTES:
        raise BrokenBundle(f"the file is larger than {MOST_BYTES} bytes")
    found: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            rows = archive.infolist()
            if sum(row.file_size for row in rows) > MOST_BYTES:
                raise BrokenBundle(f"it unpacks to more than {MOST_BYTES} bytes")
            for row in rows:
                if row.filename not in MEMBERS or row.filename in found:
                    raise BrokenBundle(
                        f"it has a member {row.filename!r}, which a bundle does not have, or has only once"
                    )
                found[row.filename] = archive.read(row)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise BrokenBundle(f"not a bundle: {error}") from error
    return found


def _object(members: Mapping[str, bytes], name: str) -> dict[str, Any]:
    try:
        found = json.loads(_text(members, name))
    except (ValueError, RecursionError) as error:
        raise BrokenBundle(f"damaged: {name} is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise BrokenBundle(f"damaged: {name} is not a JSON object")
    return found


def _text(members: Mapping[str, bytes], name: str) -> str:
    try:
        return members[name].decode()
    except UnicodeDecodeError as error:
        raise BrokenBundle(f"damaged: {name} is not text ({error})") from error


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"

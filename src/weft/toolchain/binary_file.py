"""Binary ↔ bytes for the cache: a JSON line, then the PTX and the cubin."""

import dataclasses
import json
from typing import Any

from weft.core.records import AssemblerNote, Binary, Diagnostic, Place, Resources, SharedSymbol


def pack(binary: Binary) -> bytes:
    """Return one JSON line with the lengths, followed by the data."""
    ptx = binary.ptx.encode()
    fields = dataclasses.asdict(dataclasses.replace(binary, ptx="", cubin=b""))
    del fields["ptx"], fields["cubin"]
    head = json.dumps({"ptx_bytes": len(ptx), "cubin_bytes": len(binary.cubin), "fields": fields})
    return head.encode() + b"\n" + ptx + binary.cubin


def unpack(data: bytes) -> Binary | None:
    """Return the Binary, or None if the bytes have another layout."""
    head, _, payload = data.partition(b"\n")
    try:
        record = json.loads(head)
        fields: dict[str, Any] = record["fields"]
        cut, end = record["ptx_bytes"], record["ptx_bytes"] + record["cubin_bytes"]
        if end != len(payload):
            return None
        fields["flags"] = tuple(fields["flags"])
        fields["resources"] = {name: Resources(**value) for name, value in fields["resources"].items()}
        fields["shared"] = {
            name: tuple(SharedSymbol(**symbol) for symbol in symbols) for name, symbols in fields["shared"].items()
        }
        fields["diagnostics"] = tuple(
            Diagnostic(d["severity"], d["message"], _place(d["place"])) for d in fields["diagnostics"]
        )
        fields["notes"] = tuple(AssemblerNote(**note) for note in fields["notes"])
        return Binary(**fields, ptx=payload[:cut].decode(), cubin=payload[cut:])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _place(fields: dict[str, Any] | None) -> Place | None:
    return Place(**{**fields, "inlined_at": _place(fields["inlined_at"])}) if fields else None

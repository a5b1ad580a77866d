"""A fork server whose children run given code, like code that broke out of the virtual GPU.

`python payload.py WITHOUT FD SCRATCH`: WITHOUT names layers, separated by commas, that must not work here.
"""

import errno
import sys
from pathlib import Path
from typing import Any, NoReturn

from weft.core.status import Status
from weft.supervise import child, isolation, isolation_namespaces, zygote
from weft.supervise.frames import Frame


class Payload:
    """Replaces `Work`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def do(self, question: Frame) -> Frame:
        """Run the text; return its `result`, or the error it raised."""
        names: dict[str, Any] = {"folder": self.folder, "given": question.fields.get("given")}
        try:
            exec(question.fields["code"], names)
        except OSError as error:
            return Frame({"refused": errno.errorcode.get(error.errno or 0, "?"), "message": str(error)})
        except Exception as error:
            return Frame({"error": Status.CRASHED.value, "message": f"{type(error).__name__}: {error}"})
        return Frame({"result": names.get("result")})


def _broken(*arguments: object, **options: object) -> NoReturn:
    raise PermissionError(errno.EPERM, "not here")


def main(without: str, descriptor: int, scratch: Path) -> int:
    """Run the fork server with children of this kind."""
    for layer in filter(None, without.split(",")):
        module, name = {
            "files": (isolation, "restrict_files"),
            "calls": (isolation, "restrict_calls"),
            "namespaces": (isolation_namespaces, "unshare"),
        }[layer]
        setattr(module, name, _broken)
    if not without:
        child.Work = Payload  # type: ignore[misc, assignment]
    return zygote.main(descriptor, scratch)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))

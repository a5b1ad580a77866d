"""Errors of a launch through Triton."""

from weft.core.errors import WeftError
from weft.core.records import Finding


class KernelFindings(WeftError):
    """The launch ran and has errors. `findings` are the records; the tensors hold what the kernel wrote."""

    def __init__(self, kernel: str, findings: tuple[Finding, ...]) -> None:
        many = f"{len(findings)} findings" if len(findings) != 1 else "1 finding"
        super().__init__(f"{kernel}: {many}\n" + "\n".join(map(str, findings)))
        self.kernel = kernel
        self.findings = findings

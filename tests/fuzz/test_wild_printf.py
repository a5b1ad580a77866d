"""printf whose format or arguments are at invalid addresses: a finding or a text in the output, never an exception."""

import numpy as np
import pytest

import weft
from weft.core.records import Binary, Run
from weft.probes import InitCheck, Probes
from weft.vm.memory import GLOBAL_BASE, SHARED_BASE
from weft.vm.runtime.watch import Instrumentation

PTX = """
.version 8.4
.target sm_89
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .align 1 .b8 format[8] = {37, 100, 32, 37, 115, 10};
.visible .entry print(.param .u64 text, .param .u64 values)
{
  .reg .b64 %text, %values, %own; .reg .b32 %r; .reg .pred %p;
  ld.param.b64 %text, [text]; ld.param.b64 %values, [values];
  setp.ne.s64 %p, %text, 0;
  mov.b64 %own, format; cvta.global.u64 %own, %own;
  selp.b64 %text, %text, %own, %p;
  { .param .b64 p0; .param .b64 p1; .param .b32 r0;
    st.param.b64 [p0], %text; st.param.b64 [p1], %values;
    call.uni (r0), vprintf, (p0, p1);
    ld.param.b32 %r, [r0]; }
  ret;
}
"""


def _print(text: int, values: int, watch: Instrumentation) -> Run:
    binary = Binary("print.ptx", "sm_89", "by hand", (), PTX, ptx_digest="print")
    return weft.VirtualGPU(threads=1).launch(binary, "print", 1, 1, [np.uint64(text), np.uint64(values)], watch=watch)


@pytest.mark.parametrize("values", [16, SHARED_BASE, GLOBAL_BASE + (1 << 40), (1 << 64) - 1])
@pytest.mark.parametrize("watch", [Instrumentation(), Probes(InitCheck())], ids=["plain", "initcheck"])
def test_arguments_at_invalid_addresses_are_a_finding(values: int, watch: Instrumentation) -> None:
    run = _print(0, values, watch)
    assert [finding.code for finding in run.findings] == ["M101"]
    assert run.printed == "0 (null)\n"


@pytest.mark.parametrize("watch", [Instrumentation(), Probes(InitCheck())], ids=["plain", "initcheck"])
def test_a_format_at_an_invalid_address_is_reported(watch: Instrumentation) -> None:
    assert "bad pointer" in _print(16, 0, watch).printed

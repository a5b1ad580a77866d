"""The kernel suite: real kernels, compiled by NVRTC and Triton, with what they must compute."""

from tests.kernels.arithmetic_cases import ARITHMETIC_CASES
from tests.kernels.attention_cases import ATTENTION_CASES
from tests.kernels.control_cases import CONTROL_CASES
from tests.kernels.triton_cases import TRITON_CASES
from tests.kernels.waiting_cases import WAITING_CASES

CASES = ATTENTION_CASES + ARITHMETIC_CASES + CONTROL_CASES + WAITING_CASES + TRITON_CASES

"""Every Triton kernel beyond the first four."""

from tests.kernels.triton_form_cases import FORM_CASES
from tests.kernels.triton_fp8_cases import FP8_CASES
from tests.kernels.triton_gemm_cases import GEMM_CASES
from tests.kernels.triton_order_cases import ORDER_CASES
from tests.kernels.triton_row_cases import ROW_CASES

TRITON_CASES = GEMM_CASES + ROW_CASES + ORDER_CASES + FORM_CASES + FP8_CASES

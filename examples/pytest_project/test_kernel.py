import pytest
import torch
from kernel import softmax


@pytest.mark.parametrize("columns", [64, 100])
def test_softmax(columns):
    x = torch.randn(5, columns, device="cuda")
    out = softmax(x, torch.empty_like(x))
    torch.testing.assert_close(out, torch.softmax(x, dim=1))

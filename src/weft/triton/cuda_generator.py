"""torch.cuda.default_generators: the state of CUDA's generator, a seed and an offset, for kernels that draw numbers.

A library's own kernels (dropout, rand, exponential) read seed and offset here and put the offset forward by what
they use. PyTorch's operators draw from the CPU's generator and leave the offset as it is.
"""

from typing import Any

import torch

_CPU = torch.device("cpu")
_UNIT = 4
"""A call of Philox gives four numbers, so CUDA's offsets are multiples of this."""


class DefaultGenerator(torch.Generator):  # type: ignore[misc]
    """The generator of cuda:0. Its state is 16 bytes, as on a GPU: seed and offset, 64 bits each."""

    def __new__(cls) -> Any:
        return super().__new__(cls, _CPU)

    def __init__(self) -> None:
        self._offset = 0
        self.manual_seed(torch.initial_seed())

    def manual_seed(self, seed: int) -> Any:
        """Begin again with a seed, at offset 0."""
        self._offset = 0
        return super().manual_seed(seed)

    def get_offset(self) -> int:
        return self._offset

    def set_offset(self, offset: int) -> None:
        if offset % _UNIT:
            raise RuntimeError("offset must be a multiple of 4")  # PyTorch's words
        self._offset = offset

    def get_state(self) -> Any:
        """Return a new tensor of bytes: seed, offset."""
        seed = self.initial_seed()
        signed = seed - (1 << 64) if seed >> 63 else seed
        return torch.tensor([signed, self._offset], dtype=torch.int64).view(torch.uint8)

    def set_state(self, state: Any) -> Any:
        seed, offset = state.view(torch.int64).tolist()
        super().manual_seed(seed)
        self.set_offset(offset)
        return self

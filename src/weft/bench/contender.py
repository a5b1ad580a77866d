"""What is timed: code that reads a problem's inputs on the device and writes outputs there."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from weft.attention.dtypes import Array
from weft.engines.cuda_device import CudaDevice
from weft.engines.cuda_gpu import CudaGPU
from weft.engines.kernel_file import KernelFile
from weft.engines.plan_launches import plan_launches
from weft.tasks.task import Declared, Outputs, Problem, Task


class Contender(Protocol):
    """One side of an A/B."""

    @property
    def name(self) -> str: ...

    @property
    def detail(self) -> str:
        """What ran exactly: the backend of a library, the digest of a kernel."""
        ...

    def upload(self, problem: Problem) -> None:
        """Copy new inputs to the device for the next call."""
        ...

    def poison(self) -> None:
        """Fill the outputs with NaN, so that a call that does not write them shows."""
        ...

    def inputs(self) -> Mapping[int, int]:
        """Address → bytes of every input on the device."""
        ...

    def enqueue(self) -> None:
        """Put one call into the device's stream."""
        ...

    def outputs(self) -> Outputs:
        """Return the outputs of the last call."""
        ...

    def close(self) -> None:
        """Free its memory."""
        ...

    def judge(self, problem: Problem, outputs: Outputs) -> str:
        """Return what is wrong with the outputs; empty if they are right."""
        ...


class Loadable(Protocol):
    """A kernel of the ladder or a user's file, as the judge uses it."""

    def load(self, problem: Problem) -> KernelFile: ...

    def declared_at(self, kernel: KernelFile, problem: Problem) -> Declared:
        """Return what it declares about its arithmetic, with the numbers of this call."""
        ...


class DeviceArrays:
    """Named host arrays, each with a device buffer."""

    def __init__(self, device: CudaDevice, arrays: Mapping[str, Array]) -> None:
        self.device, self.arrays = device, arrays
        self.buffers: dict[str, Any] = {name: device.allocate(array.nbytes) for name, array in arrays.items()}
        self.addresses = {name: int(buffer.handle) for name, buffer in self.buffers.items()}

    def write(self, name: str, values: Array) -> None:
        """Copy host → device; the host's array may change at once."""
        held = np.ascontiguousarray(values)
        if (held.shape, held.dtype) != (self.arrays[name].shape, self.arrays[name].dtype):
            raise ValueError(f"{name} must stay {held.dtype}{held.shape} during the bench")
        self.device.write(self.addresses[name], held.ctypes.data, held.nbytes)

    def read(self, name: str) -> Array:
        """Copy device → host, once the stream is done."""
        found = np.empty_like(self.arrays[name], order="C")
        self.device.read(self.addresses[name], found.ctypes.data, found.nbytes)
        return found

    def fill(self, name: str, byte: int) -> None:
        """Set every byte of one array."""
        self.device.fill(self.addresses[name], byte, self.arrays[name].nbytes)

    def free(self) -> None:
        """Free the buffers."""
        for buffer in self.buffers.values():
            self.device.free(buffer)


class KernelContender:
    """A kernel file on device buffers."""

    def __init__(self, name: str, gpu: CudaGPU, candidate: Loadable, task: Task, problem: Problem) -> None:
        self.name, self.task, self.candidate, self.device = name, task, candidate, gpu.device
        self.kernel = kernel = candidate.load(problem)
        self.plan = plan_launches(kernel, gpu, {key: array.copy() for key, array in problem.arrays.items()})
        self.detail = f"PTX {self.plan.binary.ptx_digest[:16]}"
        self.on_device = DeviceArrays(self.device, self.plan.arrays)
        self.call = self.plan.bind(self.on_device.addresses)
        self.given = tuple(problem.arrays)
        self.made = tuple(line.name for line in kernel.outputs)
        for line in kernel.workspaces:
            self.on_device.fill(line.name, 0xFF)

    def upload(self, problem: Problem) -> None:
        for name in self.given:
            self.on_device.write(name, problem.arrays[name])

    def poison(self) -> None:
        for name in self.made:
            self.on_device.fill(name, 0xFF)

    def inputs(self) -> Mapping[int, int]:
        return {self.on_device.addresses[name]: self.plan.arrays[name].nbytes for name in self.given}

    def enqueue(self) -> None:
        self.call.enqueue(self.device)

    def outputs(self) -> Outputs:
        found = {name: self.on_device.read(name) for name in self.made}
        self.device.require_no_fault(self.name)
        return found

    def close(self) -> None:
        self.on_device.free()

    def judge(self, problem: Problem, outputs: Outputs) -> str:
        wanted = {output.name: outputs[output.name] for output in self.task.outputs if output.name in outputs}
        judged = self.task.judge(problem, wanted, self.candidate.declared_at(self.kernel, problem))
        return "" if judged.passed else str(next(gate for gate in judged.gates if not gate.passed))

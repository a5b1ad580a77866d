"""A kernel file → one translation unit for PyTorch: the unchanged file, and a host function made from its launch lines.

The function takes the `in` arrays in the order of the file, checks them, allocates the others, launches, and returns
the first `out` array.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.core.errors import UsageError
from weft.engines.bind import bind_numbers
from weft.engines.element_types import is_float
from weft.engines.expressions import Expression
from weft.engines.kernel_file import KernelFile
from weft.engines.launch_records import ArrayLine, LaunchLine, MapArgument, ScalarLine, Struct

from .cpp_formula import INTEGER_FUNCTIONS, to_cpp

UNDEFINE = (
    "__CUDA_NO_HALF_OPERATORS__",
    "__CUDA_NO_HALF_CONVERSIONS__",
    "__CUDA_NO_HALF2_OPERATORS__",
    "__CUDA_NO_BFLOAT16_CONVERSIONS__",
)
"""PyTorch's extension builder defines these, which removes `half(x)` and half arithmetic from kernels."""

INCLUDES = (
    "torch/extension.h",
    "c10/cuda/CUDAException.h",
    "c10/cuda/CUDAGuard.h",
    "c10/cuda/CUDAStream.h",
    "algorithm",
    "cmath",
    "cstdint",
)

TENSOR_CHECK = """\
// What the kernel assumes. 16 bytes are the widest access a kernel can make.
inline void check_tensor(const char* name, const torch::Tensor& x, c10::IntArrayRef shape, c10::ScalarType dtype,
                         c10::Device device) {
    TORCH_CHECK(x.is_cuda() && x.device() == device, name, " is on ", x.device(), "; all must be on one GPU");
    TORCH_CHECK(x.scalar_type() == dtype, name, " is ", x.scalar_type(), ", not ", dtype);
    TORCH_CHECK(x.sizes() == shape, name, " has the shape ", x.sizes(), ", not ", shape);
    TORCH_CHECK(x.is_contiguous(), name, " is not contiguous: pass ", name, ".contiguous()");
    TORCH_CHECK(reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0, name, " is not aligned: pass ", name,
                ".clone()");
}

// A size, which kernels take as int.
inline int64_t size_of(const char* name, const torch::Tensor& x, int64_t axis) {
    TORCH_CHECK(axis < x.dim(), name, " has the shape ", x.sizes(), ": too few dimensions");
    TORCH_CHECK(1 <= x.size(axis) && x.size(axis) <= INT32_MAX, name, " has the shape ", x.sizes());
    return x.size(axis);
}
"""

_TORCH: Mapping[str, tuple[str, str]] = {
    "f16": ("torch::kHalf", "half"),
    "bf16": ("torch::kBFloat16", "__nv_bfloat16"),
    "f32": ("torch::kFloat", "float"),
    "u8": ("torch::kByte", "unsigned char"),
    "i32": ("torch::kInt", "int"),
    "i64": ("torch::kLong", "int64_t"),
}
"""Element type → PyTorch's name, and the type a pointer to it has."""

_SCALARS: Mapping[str, str] = {"f32": "float", "f64": "double", "i32": "int", "i64": "int64_t"}


@dataclass(frozen=True)
class Instance:
    """One instantiation of the launched templates: its sizes and its launches."""

    sizes: Mapping[str, int]
    callees: tuple[str, ...]


def torch_unit(
    kernel: KernelFile,
    shapes: Sequence[Mapping[str, int]],
    *,
    notes: Sequence[str],
    checks: str,
    every_output: bool = False,
) -> str:
    """Return the file's text. `shapes` are the sizes it must support, `notes` its header, `checks` C++ after the sizes.

    `every_output`: the function returns all `out` arrays as a tuple, not only the first.
    """
    _refuse_what_has_no_form(kernel)
    source = Path(kernel.path)
    lines = [f"// {note}".rstrip() for note in notes]
    lines += ["", "// PyTorch's extension builder defines these; the kernel converts and computes in half."]
    lines += [f"#undef {macro}" for macro in UNDEFINE]
    lines += ["", *(f"#include <{header}>" for header in (*INCLUDES, *(["tuple"] if every_output else ())))]
    lines += ["", "// The kernel's defines, from its launch lines."]
    lines += [f"#define {name} {value}" for name, value in _defines(kernel, shapes).items()]
    lines += ["", f"// {'-' * 30} {source.name}, unchanged {'-' * 30}", "", source.read_text().rstrip()]
    lines += ["", f"// {'-' * 30} host code, from the launch lines {'-' * 30}", ""]
    lines += ["namespace {", "", INTEGER_FUNCTIONS, TENSOR_CHECK, "}  // namespace", ""]
    lines += [*_function(kernel, shapes, checks, every_output=every_output)]
    lines += ["", "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {"]
    lines += [f'    m.def("forward", &forward, "{source.stem} (CUDA)");', "}", ""]
    return "\n".join(lines)


def instances(kernel: KernelFile, shapes: Sequence[Mapping[str, int]]) -> tuple[Instance, ...]:
    """Return the distinct instantiations that the shapes need, in the order of their sizes."""
    read = {name for launch in kernel.launches for piece in _formulas(launch.callee) for name in piece.names}
    found: dict[tuple[int, ...], Instance] = {}
    for sizes in shapes:
        names = bind_numbers(kernel.lines, kernel.path, sizes=sizes, defines=kernel.defines).names
        chosen = {name: sizes[name] for name in kernel.sizes if name in read}
        callees = tuple("".join(_piece(piece, names) for piece in launch.callee) for launch in kernel.launches)
        found[tuple(chosen.values())] = Instance(chosen, callees)
    return tuple(found[key] for key in sorted(found))


def _piece(piece: str | Expression, names: Mapping[str, int | float | str]) -> str:
    if isinstance(piece, str):
        return piece
    text = names.get(piece.name)
    return text if isinstance(text, str) else str(piece.integer(names, "a template argument"))


def _formulas(callee: Sequence[str | Expression]) -> list[Expression]:
    return [piece for piece in callee if isinstance(piece, Expression)]


def _refuse_what_has_no_form(kernel: KernelFile) -> None:
    for line in kernel.lines.arrays:
        if line.role in ("inout", "constant"):
            raise UsageError(f"{kernel.path}:{line.line}: no export to PyTorch for an array of role {line.role}")
        if line.element not in _TORCH:
            raise UsageError(f"{kernel.path}:{line.line}: no export to PyTorch for {line.element}")
    if not kernel.outputs:
        raise UsageError(f"{kernel.path}: no `out` array, so there is nothing to return")
    for launch in kernel.launches:
        if any(isinstance(argument, Struct | MapArgument) for argument in launch.arguments):
            raise UsageError(f"{kernel.path}:{launch.line}: no export to PyTorch for a struct or a tensor map")


def _defines(kernel: KernelFile, shapes: Sequence[Mapping[str, int]]) -> Mapping[str, str]:
    """Return the macros, which are fixed at compilation, so that every shape must have the same."""
    found = [bind_numbers(kernel.lines, kernel.path, sizes=sizes, defines=kernel.defines).defines for sizes in shapes]
    for other in found[1:]:
        if other != found[0]:
            names = ", ".join(name for name in other if other[name] != found[0].get(name))
            raise UsageError(f"{kernel.path}: {names} depends on the sizes; export one shape at a time")
    return found[0]


def _function(kernel: KernelFile, shapes: Sequence[Mapping[str, int]], checks: str, *, every_output: bool) -> list[str]:
    inputs = [line for line in kernel.lines.arrays if line.role == "in"]
    if not inputs:
        raise UsageError(f"{kernel.path}: no `in` array, so the device to run on is not known")
    first = inputs[0].name
    body = [*_sizes(kernel, inputs), *checks.splitlines()]
    for line in inputs:
        body.append(f'check_tensor("{line.name}", {line.name}, {_shape(line)}, {_TORCH[line.element][0]}, device);')
    body += ["", "const c10::cuda::CUDAGuard guard(device);"]
    body += ["const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();"]
    for line in kernel.lines.arrays:
        if line.role in ("out", "workspace"):
            options = f"{first}.options().dtype({_TORCH[line.element][0]})"
            body.append(f"torch::Tensor {line.name} = torch::empty({_shape(line)}, {options});")
    body += [_scalar(scalar, kernel.path) for scalar in kernel.scalars]
    choices = instances(kernel, shapes)
    for number, launch in enumerate(kernel.launches):
        body += ["", *_launch(kernel, launch, number, choices)]
    names = [line.name for line in kernel.outputs] if every_output else [kernel.outputs[0].name]
    body += [f"return {{{', '.join(names)}}};" if every_output else f"return {names[0]};"]
    kind = f"std::tuple<{', '.join(['torch::Tensor'] * len(names))}>" if every_output else "torch::Tensor"
    head = f"{kind} forward("
    parameters = f",\n{' ' * len(head)}".join(f"const torch::Tensor& {line.name}" for line in inputs)
    return [f"{head}{parameters}) {{", f"    const c10::Device device = {first}.device();", *_indented(body), "}"]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}".rstrip() for line in lines]


def _shape(line: ArrayLine) -> str:
    return f"{{{', '.join(to_cpp(size, floats=()) for size in line.shape)}}}"


def _sizes(kernel: KernelFile, inputs: Sequence[ArrayLine]) -> list[str]:
    """Return code that reads each size from the first array that has it as a dimension."""
    reads: dict[str, str] = {}
    for line in inputs:
        for axis, size in enumerate(line.shape):
            if size.name in kernel.sizes:
                read = f'const int64_t {size.name} = size_of("{line.name}", {line.name}, {axis});'
                reads.setdefault(size.name, read)
    missing = [name for name in kernel.sizes if name not in reads]
    if missing:
        raise UsageError(f"{kernel.path}: no input has {', '.join(missing)} as a separate dimension")
    return list(reads.values())


def _scalar(scalar: ScalarLine, path: str) -> str:
    if scalar.element not in _SCALARS:
        raise UsageError(f"{path}:{scalar.line}: no export to PyTorch for a scalar of type {scalar.element}")
    kind = _SCALARS[scalar.element]
    return f"const {kind} {scalar.name} = static_cast<{kind}>({to_cpp(scalar.value, floats=())});"


def _launch(kernel: KernelFile, launch: LaunchLine, number: int, choices: Sequence[Instance]) -> list[str]:
    """Return a lambda that launches any instantiation, and the choice of one by the sizes."""
    if launch.cluster:
        raise UsageError(f"line {launch.line}: cluster(…) is not exported; write __cluster_dims__ on the kernel")
    floats = {scalar.name for scalar in kernel.scalars if is_float(scalar.element)}
    grid, block = (
        ", ".join(f"static_cast<unsigned>({to_cpp(size, floats=floats)})" for size in sizes)
        for sizes in (launch.grid, launch.block)
    )
    name = f"launch_{number + 1}" if kernel.launches[1:] else "launch"
    shared = to_cpp(launch.shared, floats=floats) if launch.shared else "0"
    body = [f"const dim3 grid({grid});", f"const dim3 block({block});", f"const int64_t shared_bytes = {shared};"]
    if launch.opt_in_shared:
        limit = "cudaFuncAttributeMaxDynamicSharedMemorySize"
        body.append(f"C10_CUDA_CHECK(cudaFuncSetAttribute(kernel, {limit}, static_cast<int>(shared_bytes)));")
    call = "kernel<<<grid, block, shared_bytes, stream>>>("
    passed = [_argument(kernel, argument, floats) for argument in launch.passed()]
    body += [
        call,
        *(f"    {argument}," for argument in passed[:-1]),
        *(f"    {argument});" for argument in passed[-1:]),
    ]
    if not passed:
        body[-1] += ");"
    lines = [f"const auto {name} = [&](auto* kernel) {{", *_indented(body), "};"]
    choosing: list[str] = []
    for position, choice in enumerate(choices):
        test = " && ".join(f"{size} == {value}" for size, value in choice.sizes.items())
        choosing.append(f"{'} else ' if position else ''}if ({test or 'true'}) {{")
        choosing.append(f"    {name}({choice.callees[number].strip()});")
    if choices[0].sizes:
        given = ", ".join(f'"{size} = ", {size}, "; "' for size in choices[0].sizes)
        served = "; ".join(", ".join(f"{size} = {value}" for size, value in each.sizes.items()) for each in choices)
        choosing += ["} else {", f'    TORCH_CHECK(false, {given}, "this file was generated for {served}");']
    choosing += ["}", "C10_CUDA_KERNEL_LAUNCH_CHECK();"]
    if launch.when:
        choosing = [f"if ({to_cpp(launch.when, floats=floats)}) {{", *_indented(choosing), "}"]
    return [*lines, *choosing]


def _argument(kernel: KernelFile, argument: Expression, floats: set[str]) -> str:
    for line in kernel.lines.arrays:
        if argument.name == line.name:
            kind = _TORCH[line.element][1]
            const, method = ("const ", "const_data_ptr") if line.role == "in" else ("", "mutable_data_ptr")
            return f"static_cast<{const}{kind}*>({line.name}.{method}())"
    return to_cpp(argument, floats=floats)

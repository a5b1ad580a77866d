"""Conditional nodes of graphs: if, if-else, while and switch, nested, updated, and what the driver does not take."""

import ctypes
from ctypes import byref

from driver_api import allocate, call, code, load, read, start, write

PTX = b"""
.version 8.0
.target sm_80
.address_size 64
.extern .func cudaGraphSetConditional (.param .b64 handle, .param .b32 value);
.visible .entry set(.param .u64 handle, .param .u64 x, .param .u32 limit)
{
    .reg .pred %p; .reg .b32 %r<3>; .reg .b64 %rd<2>;
    ld.param.u64 %rd0, [handle];
    ld.param.u64 %rd1, [x];
    ld.param.u32 %r0, [limit];
    ld.global.u32 %r1, [%rd1];
    setp.lt.u32 %p, %r1, %r0;
    selp.u32 %r2, 1, 0, %p;
    { .param .b64 p0; .param .b32 p1; st.param.b64 [p0], %rd0; st.param.b32 [p1], %r2;
      call.uni cudaGraphSetConditional, (p0, p1); }
    ret;
}
.visible .entry add(.param .u64 x, .param .u32 n)
{
    .reg .b32 %r<2>; .reg .b64 %rd<2>;
    ld.param.u64 %rd0, [x];
    ld.param.u32 %r0, [n];
    ld.global.u32 %r1, [%rd0];
    add.u32 %r1, %r1, %r0;
    st.global.u32 [%rd0], %r1;
    ret;
}
"""
IF, WHILE, SWITCH = range(3)
INVALID_VALUE, NOT_SUPPORTED, UPDATE_FAILURE, ASSIGN_DEFAULT = 1, 801, 910, 1


class KernelParameters(ctypes.Structure):
    _fields_ = [("function", ctypes.c_void_p), ("shape", ctypes.c_uint * 7)]
    _fields_ += [(name, ctypes.c_void_p) for name in ("parameters", "extra", "kernel", "context")]


class Conditional(ctypes.Structure):
    _fields_ = [("handle", ctypes.c_uint64), ("kind", ctypes.c_int), ("size", ctypes.c_uint)]
    _fields_ += [("bodies", ctypes.POINTER(ctypes.c_void_p)), ("context", ctypes.c_void_p)]


class Of(ctypes.Union):
    _fields_ = [("conditional", Conditional), ("bytes", ctypes.c_uint8 * 232)]


class Parameters(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("reserved", ctypes.c_int * 3), ("of", Of), ("end", ctypes.c_int64)]


def new_graph():
    graph = ctypes.c_void_p()
    call("cuGraphCreate", byref(graph), 0)
    return graph


def kernel(graph, function, *values, after=()):
    node = ctypes.c_void_p()
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    given = KernelParameters(function, (ctypes.c_uint * 7)(1, 1, 1, 1, 1, 1, 0), ctypes.addressof(pointers))
    nodes = (ctypes.c_void_p * len(after))(*after)
    call("cuGraphAddKernelNode_v2", byref(node), graph, nodes, ctypes.c_size_t(len(after)), byref(given))
    return node


def condition(graph, first=0, flags=0):
    handle = ctypes.c_uint64()
    call("cuGraphConditionalHandleCreate", byref(handle), graph, None, first, flags)
    return handle


def conditional(graph, handle, kind, size=1, after=()):
    """Return the node and its graphs, or the driver's code."""
    node = ctypes.c_void_p()
    given = Parameters(type=13, of=Of(conditional=Conditional(handle, kind, size)))
    nodes = (ctypes.c_void_p * len(after))(*after)
    result = code("cuGraphAddNode_v2", byref(node), graph, nodes, None, ctypes.c_size_t(len(after)), byref(given))
    if result:
        return result
    return node, [ctypes.c_void_p(given.of.conditional.bodies[i]) for i in range(size)]


def instantiated(graph):
    exec_ = ctypes.c_void_p()
    call("cuGraphInstantiateWithFlags", byref(exec_), graph, ctypes.c_uint64(0))
    return exec_


def run(exec_, value):
    write(x, [value])
    call("cuGraphLaunch", exec_, None)
    return read(x, 1)[0]


start()
module, set_ = load(PTX, "set")
_, add = load(PTX, "add")
x = allocate(4)
one, ten, hundred, five = (ctypes.c_uint32(number) for number in (1, 10, 100, 5))

# if (x < 5) x += 10; else x += 100; x += 1
graph = new_graph()
handle = condition(graph)
first = kernel(graph, set_, handle, x, five)
node, (yes, no) = conditional(graph, handle, IF, 2, after=[first])
kernel(yes, add, x, ten)
kernel(no, add, x, hundred)
kernel(graph, add, x, one, after=[node])
exec_ = instantiated(graph)
assert (run(exec_, 4), run(exec_, 5), run(exec_, 0)) == (15, 106, 11)

# A graph of the same shape replaces the parameters; one with another kind of node does not.
for kind, size, expected in ((IF, 2, 0), (IF, 1, UPDATE_FAILURE), (SWITCH, 2, UPDATE_FAILURE)):
    other = new_graph()
    handle = condition(other)
    first = kernel(other, set_, handle, x, hundred)
    node, bodies = conditional(other, handle, kind, size, after=[first])
    for body in bodies:
        kernel(body, add, x, five)
    kernel(other, add, x, one, after=[node])
    assert code("cuGraphExecUpdate_v2", exec_, other, (ctypes.c_uint64 * 3)()) == expected
    assert run(exec_, 50) == 56

# while (x < 10) { if (x < 5) x += 1; x += 1; }: the condition is true at first
graph = new_graph()
loop, inner = condition(graph, 1, ASSIGN_DEFAULT), condition(graph)
_, (body,) = conditional(graph, loop, WHILE)
ask = kernel(body, set_, inner, x, five)
node, (small,) = conditional(body, inner, IF, after=[ask])
kernel(small, add, x, one)
step = kernel(body, add, x, one, after=[node])
kernel(body, set_, loop, x, ten, after=[step])
exec_ = instantiated(graph)
assert (run(exec_, 0), run(exec_, 3), run(exec_, 20)) == (10, 10, 21)

# switch (value): no body for a value that has none
for value, expected in ((0, 1), (1, 10), (2, 0), (77, 0)):
    graph = new_graph()
    _, bodies = conditional(graph, condition(graph, value, ASSIGN_DEFAULT), SWITCH, 2)
    for body, amount in zip(bodies, (one, ten), strict=True):
        kernel(body, add, x, amount)
    exec_ = instantiated(graph)
    call("cuGraphDestroy", graph)
    assert run(exec_, 0) == expected

# What the driver does not take.
graph = new_graph()
handle = condition(graph)
assert code("cuGraphConditionalHandleCreate", byref(handle), graph, None, 0, 2) == INVALID_VALUE
assert code("cuGraphInstantiateWithFlags", byref(exec_), graph, ctypes.c_uint64(0)) == INVALID_VALUE
asked = (ctypes.c_uint64 * 4)()
assert code("cuGraphInstantiateWithParams", byref(exec_), graph, asked) == INVALID_VALUE and asked[3] == 5
for kind, size in ((IF, 3), (WHILE, 2), (SWITCH, 0), (3, 1), (-1, 1)):
    assert conditional(graph, handle, kind, size) == INVALID_VALUE
assert conditional(new_graph(), handle, IF) == INVALID_VALUE, "of another graph"
assert conditional(graph, ctypes.c_uint64(1 << 40), IF) == INVALID_VALUE, "no handle"
_, (body,) = conditional(graph, handle, IF)
assert conditional(graph, handle, IF) == INVALID_VALUE, "used twice"
copy, node = ctypes.c_void_p(), ctypes.c_void_p()
assert code("cuGraphClone", byref(copy), graph) == NOT_SUPPORTED
assert code("cuGraphAddChildGraphNode", byref(node), new_graph(), None, ctypes.c_size_t(0), graph) == NOT_SUPPORTED
assert code("cuGraphDestroy", body) == INVALID_VALUE, "it is the node's"
event = ctypes.c_void_p()
call("cuEventCreate", byref(event), 0)
call("cuGraphAddEventRecordNode", byref(node), body, None, ctypes.c_size_t(0), event)
assert code("cuGraphInstantiateWithFlags", byref(exec_), graph, ctypes.c_uint64(0)) == INVALID_VALUE
print("ok")

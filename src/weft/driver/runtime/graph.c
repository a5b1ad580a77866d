/* Graphs. The records of nodes have the driver's layout, except the copies; a kernel's record names it by its stub. */
#include "graph.h"

struct kernel_record {
    void *function;
    struct dim3 grid, block;
    unsigned shared;
    void **parameters, **extra;
};

static int with_function(struct kernel_record *made, const struct kernel_record *given) {
    if (!given) return INVALID_VALUE;
    *made = *given;
    return find_kernel(given->function, &made->function);
}

EXPORT int cudaGraphAddKernelNode(void **made, void *graph, void *const *nodes, size_t count, const struct kernel_record *given) {
    struct kernel_record passed;
    CALL(with_function(&passed, given) ?: cuGraphAddKernelNode(made, graph, nodes, count, &passed));
}

EXPORT int cudaGraphKernelNodeSetParams(void *node, const struct kernel_record *given) {
    struct kernel_record passed;
    CALL(with_function(&passed, given) ?: cuGraphKernelNodeSetParams(node, &passed));
}

EXPORT int cudaGraphExecKernelNodeSetParams(void *exec, void *node, const struct kernel_record *given) {
    struct kernel_record passed;
    CALL(with_function(&passed, given) ?: cuGraphExecKernelNodeSetParams(exec, node, &passed));
}

/* ---- copies ---- */

#define WITH_BOX(made, call)                                                                                         \
    struct box box;                                                                                                  \
    void *context = NULL;                                                                                            \
    CALL((made) ?: cuCtxGetCurrent(&context) ?: (call))

static int box_to_symbol(struct box *box, const void *symbol, const void *from, size_t bytes, size_t offset, int direction) {
    void *to;
    return symbol_range(symbol, bytes, offset, &to) ?: row_of(box, to, from, bytes, direction);
}

static int box_from_symbol(struct box *box, void *to, const void *symbol, size_t bytes, size_t offset, int direction) {
    void *from;
    return symbol_range(symbol, bytes, offset, &from) ?: row_of(box, to, from, bytes, direction);
}

/* For each form of a copy: add it, set it in a graph, set it in an instantiated graph. */
#define COPY_NODE(suffix, box_form, ...)                                                                             \
    EXPORT int cudaGraphAddMemcpyNode##suffix(void **made, void *graph, void *const *nodes, size_t count, __VA_ARGS__) { \
        WITH_BOX(box_form, cuGraphAddMemcpyNode(made, graph, nodes, count, &box, context));                          \
    }                                                                                                                \
    EXPORT int cudaGraphMemcpyNodeSetParams##suffix(void *node, __VA_ARGS__) {                                       \
        WITH_BOX(box_form, cuGraphMemcpyNodeSetParams(node, &box));                                                  \
    }                                                                                                                \
    EXPORT int cudaGraphExecMemcpyNodeSetParams##suffix(void *exec, void *node, __VA_ARGS__) {                       \
        WITH_BOX(box_form, cuGraphExecMemcpyNodeSetParams(exec, node, &box, context));                               \
    }

COPY_NODE(, box_of(&box, given), const struct copy_3d *given)
COPY_NODE(1D, row_of(&box, to, from, bytes, direction), void *to, const void *from, size_t bytes, int direction)
COPY_NODE(ToSymbol, box_to_symbol(&box, symbol, from, bytes, offset, direction), const void *symbol, const void *from, size_t bytes, size_t offset,
          int direction)
COPY_NODE(FromSymbol, box_from_symbol(&box, to, symbol, bytes, offset, direction), void *to, const void *symbol, size_t bytes, size_t offset,
          int direction)

EXPORT int cudaGraphAddMemsetNode(void **made, void *graph, void *const *nodes, size_t count, const void *given) {
    void *context = NULL;
    CALL(cuCtxGetCurrent(&context) ?: cuGraphAddMemsetNode(made, graph, nodes, count, given, context));
}

EXPORT int cudaGraphExecMemsetNodeSetParams(void *exec, void *node, const void *given) {
    void *context = NULL;
    CALL(cuCtxGetCurrent(&context) ?: cuGraphExecMemsetNodeSetParams(exec, node, given, context));
}

EXPORT int cudaGraphAddMemFreeNode(void **made, void *graph, void *const *nodes, size_t count, void *pointer) {
    CALL(cuGraphAddMemFreeNode(made, graph, nodes, count, (uint64_t)pointer));
}

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

/* ---- nodes of any kind ---- */

enum { KERNEL_TYPE, COPY_TYPE };

/* cudaGraphNodeParams. The driver's record has the same layout, except the function of a kernel and a copy. */
struct node_record {
    int type, reserved[3];
    union {
        struct kernel_record kernel;
        struct {
            int flags, reserved[3]; /* a context in the last two, which is not supported */
            struct copy_3d given;
        } copy;
        struct {
            int flags, reserved;
            void *context;
            struct box box;
        } driver_copy;
        uint8_t bytes[232];
    };
    int64_t end;
};

static int add_any(void **made, void *graph, void *const *nodes, const void *data, size_t count, struct node_record *given) {
    if (!given) return INVALID_VALUE;
    struct node_record passed = {.type = given->type};
    if (given->type == KERNEL_TYPE)
        return with_function(&passed.kernel, &given->kernel) ?: cuGraphAddNode_v2(made, graph, nodes, data, count, &passed);
    if (given->type == COPY_TYPE)
        return box_of(&passed.driver_copy.box, &given->copy.given) ?: cuGraphAddNode_v2(made, graph, nodes, data, count, &passed);
    return cuGraphAddNode_v2(made, graph, nodes, data, count, given); /* which it fills in */
}

#if CUDART == 12 /* both forms; CUDA 13 has the later one under the old name */
EXPORT int cudaGraphAddNode(void **made, void *graph, void *const *nodes, size_t count, struct node_record *given) {
    CALL(add_any(made, graph, nodes, NULL, count, given));
}

EXPORT int cudaGraphAddNode_v2(void **made, void *graph, void *const *nodes, const void *data, size_t count, struct node_record *given) {
    CALL(add_any(made, graph, nodes, data, count, given));
}
#else
EXPORT int cudaGraphAddNode(void **made, void *graph, void *const *nodes, const void *data, size_t count, struct node_record *given) {
    CALL(add_any(made, graph, nodes, data, count, given));
}
#endif

EXPORT int cudaGraphConditionalHandleCreate(uint64_t *made, void *graph, unsigned first, unsigned flags) {
    CALL(cuGraphConditionalHandleCreate(made, graph, NULL, first, flags));
}

EXPORT int cudaGraphConditionalHandleCreate_v2(uint64_t *made, void *graph, void *context, unsigned first, unsigned flags) {
    if (context) return done(weftRefuse(__func__, "an execution context"));
    CALL(cuGraphConditionalHandleCreate(made, graph, NULL, first, flags));
}

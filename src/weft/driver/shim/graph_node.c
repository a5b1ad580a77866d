/* Nodes of a graph: how each kind is added, read and changed. */
#include <stdlib.h>
#include <string.h>

#include "work.h"

/* As the program passes it; the later form of the struct has a kernel and a context behind it. */
struct kernel_parameters {
    struct handle *function;
    struct shape shape;
    void **parameters, **extra;
};

struct later_kernel_parameters {
    struct kernel_parameters first;
    struct handle *kernel, *context;
};

/* CUgraphNodeParams: a type and a union of the kinds. */
struct parameters {
    int type, reserved[3];
    union {
        struct later_kernel_parameters kernel;
        struct {
            int flags, reserved;
            struct handle *context;
            struct copy_3d box;
        } copy;
        struct fill_work fill;
        struct host_work host;
        struct {
            struct handle *graph;
            int ownership;
        } child;
        struct handle *event;
        struct memory_work memory;
        uint64_t address;
        struct condition_work condition;
        uint8_t bytes[232];
    };
    int64_t end;
};

/* ---- the program's structs → work ---- */

static int kernel_work(struct work *work, const struct kernel_parameters *given, struct handle *kernel) {
    struct handle *function = given && given->function ? given->function : kernel;
    if (!given) return INVALID_VALUE;
    int code = check_kernel(function, &given->shape);
    if (code != SUCCESS) return code;
    const struct function *facts = function->data;
    uint8_t *block = calloc(1, facts->parameter_bytes + 1);
    if (!block) return OUT_OF_MEMORY;
    code = pack_arguments(facts, given->parameters, given->extra, block);
    *work = (struct work){.type = KERNEL, .kernel = {function, function->id, facts->parameter_bytes, given->shape, 0, 0, 0, 0, device_number(), block, NULL}};
    if (code != SUCCESS) free(block);
    return code;
}

static int memory_work(struct work *work, const struct memory_work *given) {
    if (!given || !given->bytes) return INVALID_VALUE;
    const int *properties = given->properties; /* type of allocation, of handles, location */
    int type = properties[1] ? -1 : pool_type(properties[0], properties + 2);
    if (type < 0) return INVALID_VALUE;
    *work = (struct work){.type = ALLOCATION, .memory = *given};
    return allocate_graph_memory(&work->memory.address, given->bytes, type, type == DEVICE_MEMORY ? properties[3] : device_number());
}

int check_work(const struct work *work) {
    switch (work->type) {
    case KERNEL: return check_kernel(work->kernel.function, &work->kernel.shape);
    case COPY: return work->copy.width && work->copy.height && work->copy.depth ? check_copy(&work->copy) : INVALID_VALUE;
    case FILL: return work->fill.width && work->fill.height ? check_fill(&work->fill) : INVALID_VALUE;
    case HOST: return work->host.function ? SUCCESS : INVALID_VALUE;
    case CHILD: return is_handle(work->child, GRAPH) && !graph_of(work->child)->captured ? SUCCESS : INVALID_VALUE;
    case WAIT_EVENT:
    case RECORD_EVENT: return is_handle(work->event, EVENT) ? SUCCESS : INVALID_VALUE;
    case DEALLOCATION: return is_graph_memory(work->memory.address) ? SUCCESS : INVALID_VALUE;
    default: return SUCCESS;
    }
}

/* Arguments of a kernel and memory of an allocation are the caller's to free: see `release`. */
static int read_parameters(struct work *work, const struct parameters *given) {
    *work = (struct work){.type = given->type};
    switch (given->type) {
    case KERNEL: return kernel_work(work, &given->kernel.first, given->kernel.kernel);
    case COPY: work->copy = given->copy.box; break;
    case FILL: work->fill = given->fill; break;
    case HOST: work->host = given->host; break;
    case CHILD: work->child = given->child.graph; break;
    case WAIT_EVENT:
    case RECORD_EVENT: work->event = given->event; break;
    case ALLOCATION: return memory_work(work, &given->memory);
    case DEALLOCATION: work->memory.address = given->address; break;
    case EMPTY: break;
    case CONDITIONAL:
        work->condition = given->condition;
        work->condition.bodies = NULL;
        break;
    default: return given->type < 0 || given->type > CONDITIONAL ? INVALID_VALUE : refuse("cuGraphAddNode", "this kind of node (semaphores, memory operations)");
    }
    return check_work(work);
}

static void release(struct work *work) {
    if (work->type == KERNEL) free(work->kernel.arguments);
    if (work->type == ALLOCATION) drop_graph_memory(work->memory.address);
}

/* ---- adding ---- */

static int add(struct handle **made, struct handle *graph, struct handle *const *nodes, const void *data, size_t count, const struct work *work) {
    if (!made || !is_handle(graph, GRAPH) || (count && !nodes)) return INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!is_handle(nodes[i], NODE) || nodes[i]->owner != graph) return INVALID_VALUE;
    int code = check_work(work);
    struct edge *edges = calloc(count + 1, sizeof *edges);
    if (code == SUCCESS) code = edges ? edge_from(edges, nodes, data, count) : OUT_OF_MEMORY;
    if (code == SUCCESS && work->type == CHILD && (has_memory_nodes(graph_of(work->child)) || has_conditions(graph_of(work->child))))
        code = NOT_SUPPORTED; /* as documented */
    if (code == SUCCESS && work->type == CONDITIONAL) code = check_condition(&work->condition, graph);
    if (code == SUCCESS) code = add_node(made, graph, edges, count, work);
    if (code == SUCCESS && work->type == CONDITIONAL) use_condition(work->condition.condition);
    free(edges);
    return code;
}

static int add_kernel(struct handle **made, struct handle *graph, struct handle *const *nodes, size_t count, const struct kernel_parameters *given,
                      struct handle *kernel) {
    struct work work;
    int code = kernel_work(&work, given, kernel);
    if (code != SUCCESS) return code;
    code = add(made, graph, nodes, NULL, count, &work);
    release(&work);
    return code;
}

EXPORT int cuGraphAddKernelNode(struct handle **made, struct handle *graph, struct handle *const *nodes, size_t count,
                                const struct kernel_parameters *given) {
    CALL(INITIALISED, made, graph, nodes, count, given);
    RETURN(add_kernel(made, graph, nodes, count, given, NULL));
}

EXPORT int cuGraphAddKernelNode_v2(struct handle **made, struct handle *graph, struct handle *const *nodes, size_t count,
                                   const struct later_kernel_parameters *given) {
    CALL(INITIALISED, made, graph, nodes, count, given);
    RETURN(given ? add_kernel(made, graph, nodes, count, &given->first, given->kernel) : INVALID_VALUE);
}

EXPORT int cuGraphAddMemcpyNode(struct handle **made, struct handle *graph, struct handle *const *nodes, size_t count, const struct copy_3d *given,
                                struct handle *context) {
    CALL(INITIALISED, made, graph, nodes, count, given, context);
    if (!given) RETURN(INVALID_VALUE);
    struct work work = {.type = COPY, .copy = *given};
    RETURN(add(made, graph, nodes, NULL, count, &work));
}

EXPORT int cuGraphAddMemsetNode(struct handle **made, struct handle *graph, struct handle *const *nodes, size_t count, const struct fill_work *given,
                                struct handle *context) {
    CALL(INITIALISED, made, graph, nodes, count, given, context);
    if (!given) RETURN(INVALID_VALUE);
    struct work work = {.type = FILL, .fill = *given};
    RETURN(add(made, graph, nodes, NULL, count, &work));
}

EXPORT int cuGraphAddHostNode(struct handle **made, struct handle *graph, struct handle *const *nodes, size_t count, const struct host_work *given) {
    CALL(INITIALISED, made, graph, nodes, count, given);
    if (!given) RETURN(INVALID_VALUE);
    struct work work = {.type = HOST, .host = *given};
    RETURN(add(made, graph, nodes, NULL, count, &work));
}

EXPORT int cuGraphAddChildGraphNode(struct handle **made, struct handle *graph, struct handle *const *nodes, size_t count, struct handle *child) {
    CALL(INITIALISED, made, graph, nodes, count, child);
    struct work work = {.type = CHILD, .child = child};
    RETURN(add(made, graph, nodes, NULL, count, &work));
}

EXPORT int cuGraphAddEmptyNode(struct handle **made, struct handle *graph, struct handle *const *nodes, size_t count) {
    CALL(INITIALISED, made, graph, nodes, count);
    struct work work = {.type = EMPTY};
    RETURN(add(made, graph, nodes, NULL, count, &work));
}

EXPORT int cuGraphAddEventRecordNode(struct handle **made, struct handle *graph, struct handle *const *nodes, size_t count, struct handle *event) {
    CALL(INITIALISED, made, graph, nodes, count, event);
    struct work work = {.type = RECORD_EVENT, .event = event};
    RETURN(add(made, graph, nodes, NULL, count, &work));
}

EXPORT int cuGraphAddEventWaitNode(struct handle **made, struct handle *graph, struct handle *const *nodes, size_t count, struct handle *event) {
    CALL(INITIALISED, made, graph, nodes, count, event);
    struct work work = {.type = WAIT_EVENT, .event = event};
    RETURN(add(made, graph, nodes, NULL, count, &work));
}

EXPORT int cuGraphAddMemAllocNode(struct handle **made, struct handle *graph, struct handle *const *nodes, size_t count, struct memory_work *given) {
    CALL(CURRENT, made, graph, nodes, count, given);
    struct work work;
    int code = memory_work(&work, given);
    if (code != SUCCESS) RETURN(code);
    code = add(made, graph, nodes, NULL, count, &work);
    if (code == SUCCESS) given->address = work.memory.address;
    release(&work); /* the node holds it */
    RETURN(code);
}

EXPORT int cuGraphAddMemFreeNode(struct handle **made, struct handle *graph, struct handle *const *nodes, size_t count, uint64_t address) {
    CALL(CURRENT, made, graph, nodes, count, address);
    struct work work = {.type = DEALLOCATION, .memory = {.address = address}};
    RETURN(add(made, graph, nodes, NULL, count, &work));
}

static int add_any(struct handle **made, struct handle *graph, struct handle *const *nodes, const void *data, size_t count, struct parameters *given) {
    if (!given) return INVALID_VALUE;
    struct work work;
    int code = read_parameters(&work, given);
    if (code != SUCCESS) return code;
    code = add(made, graph, nodes, data, count, &work);
    if (code == SUCCESS && given->type == CHILD) {
        if (given->child.ownership == 1) destroy_graph(work.child); /* moved into the parent: the copy is what is left of it */
        given->child.graph = node_of(*made)->work.child;
    }
    if (code == SUCCESS && given->type == CONDITIONAL) given->condition.bodies = node_of(*made)->work.condition.bodies;
    if (code == SUCCESS && given->type == ALLOCATION) given->memory.address = work.memory.address;
    release(&work);
    return code;
}

EXPORT int cuGraphAddNode_v2(struct handle **made, struct handle *graph, struct handle *const *nodes, const void *data, size_t count,
                             struct parameters *given) {
    CALL(CURRENT, made, graph, nodes, data, count, given);
    RETURN(add_any(made, graph, nodes, data, count, given));
}

EXPORT int cuGraphAddNode(struct handle **made, struct handle *graph, struct handle *const *nodes, size_t count, struct parameters *given) {
    CALL(CURRENT, made, graph, nodes, count, given);
    RETURN(add_any(made, graph, nodes, NULL, count, given));
}

/* ---- reading and changing; `target` finds the node in a graph, or its copy in an instantiated one ---- */

static struct node *target(struct handle *exec, struct handle *handle, int type, int of_exec) {
    if (!is_handle(handle, NODE) || node_of(handle)->work.type != type) return NULL;
    struct node *found = of_exec ? copy_in(exec, handle) : node_of(handle);
    return found && found->work.type == type ? found : NULL;
}

static int straight(const struct work *work) {
    return work->type == FILL ? work->fill.height == 1 : work->type != COPY || (work->copy.height <= 1 && work->copy.depth <= 1);
}

/* Frees what the work holds. */
static int replace(struct handle *exec, struct handle *handle, struct work *work, int of_exec) {
    struct node *node = target(exec, handle, work->type, of_exec);
    int code = node ? check_work(work) : INVALID_VALUE;
    if (code == SUCCESS && of_exec) { /* as documented: rows only, and no other kind of memory */
        if (!straight(work) || !straight(&node->work)) code = INVALID_VALUE;
        if (work->type == COPY && (work->copy.from_type != node->work.copy.from_type || work->copy.to_type != node->work.copy.to_type)) code = INVALID_VALUE;
    }
    if (code == SUCCESS && work->type == KERNEL) {
        work->kernel.cooperative = node->work.kernel.cooperative;
        work->kernel.priority = node->work.kernel.priority;
    }
    if (code == SUCCESS) code = work->type == CHILD && of_exec ? update_child(node, work->child) : set_work(node, work);
    if (code == SUCCESS && work->type == CHILD && !of_exec) graph_of(node->work.child)->parent = handle;
    release(work);
    return code;
}

static int replace_kernel(struct handle *exec, struct handle *node, const struct kernel_parameters *given, struct handle *kernel, int of_exec) {
    struct work work;
    int code = kernel_work(&work, given, kernel);
    return code == SUCCESS ? replace(exec, node, &work, of_exec) : code;
}

static int replace_any(struct handle *exec, struct handle *node, const struct parameters *given, int of_exec) {
    struct work work;
    if (!given || given->type == ALLOCATION || given->type == DEALLOCATION || given->type == CONDITIONAL) return INVALID_VALUE;
    int code = read_parameters(&work, given);
    return code == SUCCESS ? replace(exec, node, &work, of_exec) : code;
}

EXPORT int cuGraphKernelNodeSetParams(struct handle *node, const struct kernel_parameters *given) {
    CALL(INITIALISED, node, given);
    RETURN(replace_kernel(NULL, node, given, NULL, 0));
}

EXPORT int cuGraphKernelNodeSetParams_v2(struct handle *node, const struct later_kernel_parameters *given) {
    CALL(INITIALISED, node, given);
    RETURN(given ? replace_kernel(NULL, node, &given->first, given->kernel, 0) : INVALID_VALUE);
}

EXPORT int cuGraphExecKernelNodeSetParams(struct handle *exec, struct handle *node, const struct kernel_parameters *given) {
    CALL(INITIALISED, exec, node, given);
    RETURN(replace_kernel(exec, node, given, NULL, 1));
}

EXPORT int cuGraphExecKernelNodeSetParams_v2(struct handle *exec, struct handle *node, const struct later_kernel_parameters *given) {
    CALL(INITIALISED, exec, node, given);
    RETURN(given ? replace_kernel(exec, node, &given->first, given->kernel, 1) : INVALID_VALUE);
}

EXPORT int cuGraphNodeSetParams(struct handle *node, const struct parameters *given) {
    CALL(INITIALISED, node, given);
    RETURN(replace_any(NULL, node, given, 0));
}

EXPORT int cuGraphExecNodeSetParams(struct handle *exec, struct handle *node, const struct parameters *given) {
    CALL(INITIALISED, exec, node, given);
    RETURN(replace_any(exec, node, given, 1));
}

/* A kind whose parameters are one struct: how to set it in a node and in an instantiated graph. */
#define SETTERS(name, exec_name, kind, field, struct_type, ...)                                                      \
    EXPORT int name(struct handle *node, const struct_type *given) {                                                 \
        CALL(INITIALISED, node, given);                                                                              \
        if (!given) RETURN(INVALID_VALUE);                                                                           \
        struct work work = {.type = kind, .field = *given};                                                          \
        RETURN(replace(NULL, node, &work, 0));                                                                       \
    }                                                                                                                \
    EXPORT int exec_name(struct handle *exec, struct handle *node, const struct_type *given __VA_ARGS__) {            \
        CALL(INITIALISED, exec, node, given);                                                                        \
        if (!given) RETURN(INVALID_VALUE);                                                                           \
        struct work work = {.type = kind, .field = *given};                                                          \
        RETURN(replace(exec, node, &work, 1));                                                                       \
    }
#define AND_CONTEXT , struct handle *context
SETTERS(cuGraphMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams, COPY, copy, struct copy_3d, AND_CONTEXT)
SETTERS(cuGraphMemsetNodeSetParams, cuGraphExecMemsetNodeSetParams, FILL, fill, struct fill_work, AND_CONTEXT)
SETTERS(cuGraphHostNodeSetParams, cuGraphExecHostNodeSetParams, HOST, host, struct host_work)

#define EVENT_SETTERS(name, exec_name, kind)                                                                         \
    EXPORT int name(struct handle *node, struct handle *event) {                                                     \
        CALL(INITIALISED, node, event);                                                                              \
        struct work work = {.type = kind, .event = event};                                                           \
        RETURN(replace(NULL, node, &work, 0));                                                                       \
    }                                                                                                                \
    EXPORT int exec_name(struct handle *exec, struct handle *node, struct handle *event) {                            \
        CALL(INITIALISED, exec, node, event);                                                                        \
        struct work work = {.type = kind, .event = event};                                                           \
        RETURN(replace(exec, node, &work, 1));                                                                       \
    }
EVENT_SETTERS(cuGraphEventRecordNodeSetEvent, cuGraphExecEventRecordNodeSetEvent, RECORD_EVENT)
EVENT_SETTERS(cuGraphEventWaitNodeSetEvent, cuGraphExecEventWaitNodeSetEvent, WAIT_EVENT)

static int get_kernel(struct handle *handle, struct kernel_parameters *shown) {
    struct node *node = target(NULL, handle, KERNEL, 0);
    if (!node || !shown) return INVALID_VALUE;
    struct kernel_work *kernel = &node->work.kernel;
    if (!is_handle(kernel->function, FUNCTION) || kernel->function->id != kernel->id) return INVALID_HANDLE;
    const struct function *function = kernel->function->data;
    if (!kernel->pointers && !(kernel->pointers = calloc(function->parameters + 1, sizeof(void *)))) return OUT_OF_MEMORY;
    for (uint32_t i = 0; i < function->parameters; i++) kernel->pointers[i] = kernel->arguments + function->layout[2 * i];
    *shown = (struct kernel_parameters){kernel->function, kernel->shape, function->parameters ? kernel->pointers : NULL, NULL};
    return SUCCESS;
}

EXPORT int cuGraphKernelNodeGetParams(struct handle *node, struct kernel_parameters *shown) {
    CALL(INITIALISED, node, shown);
    RETURN(get_kernel(node, shown));
}

EXPORT int cuGraphKernelNodeGetParams_v2(struct handle *node, struct later_kernel_parameters *shown) {
    CALL(INITIALISED, node, shown);
    if (!shown) RETURN(INVALID_VALUE);
    shown->kernel = NULL;
    shown->context = current_context();
    RETURN(get_kernel(node, &shown->first));
}

#define GETTER(name, kind, field, shown_type)                                                                        \
    EXPORT int name(struct handle *handle, shown_type *shown) {                                                      \
        CALL(INITIALISED, handle, shown);                                                                            \
        const struct node *node = target(NULL, handle, kind, 0);                                                     \
        if (!node || !shown) RETURN(INVALID_VALUE);                                                                  \
        *shown = node->work.field;                                                                                   \
        RETURN(SUCCESS);                                                                                             \
    }
GETTER(cuGraphMemcpyNodeGetParams, COPY, copy, struct copy_3d)
GETTER(cuGraphMemsetNodeGetParams, FILL, fill, struct fill_work)
GETTER(cuGraphHostNodeGetParams, HOST, host, struct host_work)
GETTER(cuGraphChildGraphNodeGetGraph, CHILD, child, struct handle *)
GETTER(cuGraphEventRecordNodeGetEvent, RECORD_EVENT, event, struct handle *)
GETTER(cuGraphEventWaitNodeGetEvent, WAIT_EVENT, event, struct handle *)
GETTER(cuGraphMemAllocNodeGetParams, ALLOCATION, memory, struct memory_work)
GETTER(cuGraphMemFreeNodeGetParams, DEALLOCATION, memory.address, uint64_t)

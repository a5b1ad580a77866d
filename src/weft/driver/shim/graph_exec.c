/* Instantiated graphs: a copy whose nodes have an order. A launch runs them one after the other. */
#include <stdlib.h>
#include <string.h>

#include "work.h"

enum { AUTO_FREE = 1, UPLOAD = 2, DEVICE_LAUNCH = 4, KNOWN_FLAGS = 15 };
enum { STRUCTURE_INVALID = 2, CONDITION_UNUSED = 5 };
enum { TOPOLOGY_CHANGED = 2, TYPE_CHANGED, PARAMETERS_CHANGED = 5, UPDATE_UNSUPPORTED };
enum { ATTRIBUTE_COOPERATIVE = 2, ATTRIBUTE_CLUSTER = 4, ATTRIBUTE_PRIORITY = 8, ATTRIBUTE_LAST = 14 };

static struct exec *exec_of(struct handle *handle) { return handle->data; }

/* ---- instantiation ---- */

/* Puts every node behind those that it depends on, else in the order of creation. Fails for a circle. */
static int put_in_order(struct graph *graph) {
    uint8_t *placed = calloc(graph->count + 1, 1);
    struct handle **order = calloc(graph->count + 1, sizeof *order);
    size_t done = 0, before = SIZE_MAX;
    while (placed && order && done < graph->count && done != before) {
        before = done;
        for (size_t at = 0; at < graph->count; at++) {
            const struct node *node = node_of(graph->nodes[at]);
            size_t ready = 0;
            while (ready < node->count && placed[node_of(node->edges[ready].from)->place]) ready++;
            if (placed[at] || ready < node->count) continue;
            placed[at] = 1;
            order[done++] = graph->nodes[at];
        }
    }
    int code = !placed || !order ? OUT_OF_MEMORY : done < graph->count ? INVALID_VALUE : SUCCESS;
    free(placed);
    free(graph->order);
    graph->order = order;
    for (size_t at = 0; code == SUCCESS && at < graph->count; at++) {
        const struct work *work = &node_of(graph->nodes[at])->work;
        struct handle *const *graphs;
        for (size_t i = graphs_in(work, &graphs); code == SUCCESS && i--;) code = put_in_order(graph_of(graphs[i]));
        if (code == SUCCESS && work->type == CONDITIONAL)
            for (size_t i = 0; code == SUCCESS && i < work->condition.size; i++) code = allowed_in_body(graph_of(graphs[i])) ? SUCCESS : INVALID_VALUE;
    }
    return code;
}

static int instantiate(struct handle **made, struct handle *graph, uint64_t flags) {
    if (!made || !is_handle(graph, GRAPH) || graph_of(graph)->captured || flags & ~(uint64_t)KNOWN_FLAGS) return INVALID_VALUE;
    if (has_unused_conditions(graph)) return INVALID_VALUE;
    if (flags & DEVICE_LAUNCH) return refuse("cuGraphInstantiate", "graphs that kernels launch (CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)");
    struct handle *handle = new_handle(EXEC);
    struct exec *exec = calloc(1, sizeof *exec);
    int code = handle && exec ? clone_graph(&exec->graph, graph) : OUT_OF_MEMORY;
    if (code == SUCCESS) code = put_in_order(graph_of(exec->graph));
    if (code != SUCCESS) {
        if (exec && exec->graph) destroy_graph(exec->graph);
        free(exec);
        if (handle) free_handle(handle);
        return code;
    }
    exec->flags = flags;
    handle->data = exec;
    *made = handle;
    return SUCCESS;
}

EXPORT int cuGraphInstantiateWithFlags(struct handle **exec, struct handle *graph, uint64_t flags) {
    CALL(CURRENT, exec, graph, flags);
    RETURN(instantiate(exec, graph, flags));
}

/* The forms before CUDA 12 return the node of an error and a text. */
EXPORT int cuGraphInstantiate_v2(struct handle **exec, struct handle *graph, struct handle **error, char *text, size_t bytes) {
    CALL(CURRENT, exec, graph, error, text, bytes);
    if (error) *error = NULL;
    if (text && bytes) *text = 0;
    RETURN(instantiate(exec, graph, 0));
}

EXPORT int cuGraphInstantiate(struct handle **exec, struct handle *graph, struct handle **error, char *text, size_t bytes) {
    return cuGraphInstantiate_v2(exec, graph, error, text, bytes);
}

struct instantiation {
    uint64_t flags;
    struct handle *stream, *error;
    int result;
};

EXPORT int cuGraphInstantiateWithParams(struct handle **exec, struct handle *graph, struct instantiation *given) {
    CALL(CURRENT, exec, graph, given);
    if (!given || ((given->flags & UPLOAD) && !is_stream(given->stream))) RETURN(INVALID_VALUE);
    int code = instantiate(exec, graph, given->flags);
    given->error = NULL;
    given->result = code == SUCCESS ? 0 : code == INVALID_VALUE ? STRUCTURE_INVALID : 1;
    if (is_handle(graph, GRAPH) && has_unused_conditions(graph)) given->result = CONDITION_UNUSED;
    RETURN(code);
}

EXPORT int cuGraphExecGetFlags(struct handle *exec, uint64_t *flags) {
    CALL(INITIALISED, exec, flags);
    if (!is_handle(exec, EXEC) || !flags) RETURN(INVALID_VALUE);
    *flags = exec_of(exec)->flags;
    RETURN(SUCCESS);
}

static void free_exec(struct handle *handle) {
    destroy_graph(exec_of(handle)->graph);
    free_handle(handle);
}

EXPORT int cuGraphExecDestroy(struct handle *handle) {
    CALL(INITIALISED, handle);
    if (!is_handle(handle, EXEC)) RETURN(INVALID_VALUE);
    struct exec *exec = exec_of(handle);
    if (exec->running)
        exec->doomed = 1; /* a host function destroys the graph that runs it */
    else
        free_exec(handle);
    RETURN(SUCCESS);
}

/* ---- running ---- */

int run_work(const struct work *work) {
    switch (work->type) {
    case KERNEL: return run_kernel(&work->kernel);
    case COPY: return run_copy(&work->copy);
    case FILL: return run_fill(&work->fill);
    case RECORD_EVENT:
        if (!is_handle(work->event, EVENT)) return INVALID_HANDLE;
        record_now(work->event);
        return SUCCESS;
    case ALLOCATION: return use_graph_memory(work->memory.address);
    case DEALLOCATION: return unuse_graph_memory(work->memory.address);
    default: return SUCCESS; /* an empty node; a wait for what is done */
    }
}

static int run_graph(struct call *call, const struct graph *graph);

static int run_bodies(struct call *call, const struct condition_work *work) {
    int code = SUCCESS;
    uint64_t value = condition_value(work->condition);
    if (work->kind == WHILE_LOOP)
        for (; code == SUCCESS && value && !fault(); value = condition_value(work->condition)) code = run_graph(call, graph_of(work->bodies[0]));
    else if (work->kind == IF_ELSE)
        code = value || work->size > 1 ? run_graph(call, graph_of(work->bodies[value ? 0 : 1])) : SUCCESS;
    else if (value < work->size)
        code = run_graph(call, graph_of(work->bodies[value]));
    return code;
}

static int run_graph(struct call *call, const struct graph *graph) {
    int code = SUCCESS;
    for (size_t at = 0; code == SUCCESS && at < graph->count; at++) {
        const struct node *node = node_of(graph->order[at]);
        if (fault() || node->disabled) continue;
        if (node->work.type == CHILD) {
            code = run_graph(call, graph_of(node->work.child));
        } else if (node->work.type == CONDITIONAL) {
            code = run_bodies(call, &node->work.condition);
        } else if (node->work.type == HOST) {
            struct host_work host = node->work.host;
            suspend_call(call);
            host.function(host.data);
            resume_call(call);
        } else {
            code = run_work(&node->work);
        }
    }
    return code;
}

static void free_left_memory(const struct graph *graph) {
    for (size_t at = 0; at < graph->count; at++) {
        const struct work *work = &node_of(graph->nodes[at])->work;
        if (work->type == ALLOCATION) unuse_graph_memory(work->memory.address);
    }
}

EXPORT int cuGraphLaunch(struct handle *handle, struct handle *stream) {
    CALL(CURRENT, handle, stream);
    if (!is_handle(handle, EXEC)) RETURN(INVALID_VALUE);
    if (!is_stream(stream)) RETURN(INVALID_HANDLE);
    if (fault()) RETURN(fault());
    struct exec *exec = exec_of(handle);
    int code, capturing = is_capturing(stream, &code);
    if (code != SUCCESS) RETURN(code);
    if (capturing && has_conditions(graph_of(exec->graph))) RETURN(NOT_SUPPORTED);
    if (capturing) { /* becomes a child graph */
        struct work work = {.type = CHILD, .child = exec->graph};
        RETURN(capture_work(stream, &work));
    }
    if (exec->flags & AUTO_FREE) free_left_memory(graph_of(exec->graph));
    exec->running++;
    start_conditions(graph_of(exec->graph));
    code = run_graph(&call, graph_of(exec->graph));
    if (--exec->running == 0 && exec->doomed) free_exec(handle);
    RETURN(code);
}

EXPORT int cuGraphUpload(struct handle *exec, struct handle *stream) {
    CALL(CURRENT, exec, stream);
    if (!is_handle(exec, EXEC)) RETURN(INVALID_VALUE);
    RETURN(is_stream(stream) ? fault() : INVALID_HANDLE);
}

/* ---- changes of an instantiated graph ---- */

struct difference {
    int result;
    struct handle *node, *from;
};

static int same_shape(struct handle *old, struct handle *new, struct difference *found) {
    const struct graph *a = graph_of(old), *b = graph_of(new);
    for (size_t at = 0; at < b->count; at++) {
        const struct node *node = node_of(b->nodes[at]), *before = at < a->count ? node_of(a->nodes[at]) : NULL;
        found->node = b->nodes[at];
        if (!before || before->count != node->count) return found->result = TOPOLOGY_CHANGED;
        if (before->work.type != node->work.type) return found->result = TYPE_CHANGED;
        for (size_t i = 0; i < node->count; i++)
            if (node_of(node->edges[i].from)->place != node_of(before->edges[i].from)->place) {
                found->from = node->edges[i].from;
                return found->result = TOPOLOGY_CHANGED;
            }
        const struct work *x = &before->work, *y = &node->work;
        if (x->type == COPY && (x->copy.from_type != y->copy.from_type || x->copy.to_type != y->copy.to_type)) return found->result = PARAMETERS_CHANGED;
        if (x->type == ALLOCATION || x->type == DEALLOCATION)
            if (x->memory.address != y->memory.address) return found->result = UPDATE_UNSUPPORTED;
        if (x->type == CONDITIONAL && (x->condition.kind != y->condition.kind || x->condition.size != y->condition.size)) return found->result = PARAMETERS_CHANGED;
        struct handle *const *mine, *const *others;
        graphs_in(y, &others);
        for (size_t i = 0, held = graphs_in(x, &mine); i < held; i++)
            if (same_shape(mine[i], others[i], found)) return found->result;
    }
    found->node = NULL;
    return found->result = a->count == b->count ? 0 : TOPOLOGY_CHANGED;
}

static int take_objects(struct graph *to, const struct graph *from) {
    struct graph kept = {0}; /* the new references come first: both may hold the same object */
    int code = share_objects(&kept, from);
    drop_objects(code == SUCCESS ? to : &kept);
    if (code == SUCCESS) {
        to->objects = kept.objects;
        to->object_count = kept.object_count;
    }
    return code;
}

static int take_work(struct handle *old, struct handle *new) {
    int code = take_objects(graph_of(old), graph_of(new));
    for (size_t at = 0; code == SUCCESS && at < graph_of(new)->count; at++) {
        struct node *before = node_of(graph_of(old)->nodes[at]);
        const struct node *node = node_of(graph_of(new)->nodes[at]);
        struct handle *const *mine, *const *others;
        size_t held = graphs_in(&before->work, &mine);
        graphs_in(&node->work, &others);
        for (size_t i = 0; code == SUCCESS && i < held; i++) code = take_work(mine[i], others[i]);
        if (node->work.type == CONDITIONAL) before->work.condition.condition = node->work.condition.condition; /* which its kernels set */
        if (code == SUCCESS && !held) code = set_work(before, &node->work);
    }
    return code;
}

static int update(struct handle *exec, struct handle *graph, struct difference *found) {
    *found = (struct difference){0};
    if (!is_handle(exec, EXEC) || !is_handle(graph, GRAPH)) return INVALID_VALUE;
    if (same_shape(exec_of(exec)->graph, graph, found)) return GRAPH_EXEC_UPDATE_FAILURE;
    return take_work(exec_of(exec)->graph, graph);
}

EXPORT int cuGraphExecUpdate_v2(struct handle *exec, struct handle *graph, struct difference *found) {
    CALL(CURRENT, exec, graph, found);
    RETURN(found ? update(exec, graph, found) : INVALID_VALUE);
}

EXPORT int cuGraphExecUpdate(struct handle *exec, struct handle *graph, struct handle **node, int *result) {
    CALL(CURRENT, exec, graph, node, result);
    struct difference found;
    int code = update(exec, graph, &found);
    if (node) *node = found.node;
    if (result) *result = found.result;
    RETURN(code);
}

struct node *copy_in(struct handle *exec, struct handle *node) {
    struct handle *found = is_handle(exec, EXEC) && is_handle(node, NODE) ? find_copy(exec_of(exec)->graph, node->id) : NULL;
    return found ? node_of(found) : NULL;
}

int update_child(struct node *node, struct handle *child) {
    struct difference difference = {0};
    return same_shape(node->work.child, child, &difference) ? INVALID_VALUE : take_work(node->work.child, child);
}

EXPORT int cuGraphExecChildGraphNodeSetParams(struct handle *exec, struct handle *node, struct handle *child) {
    CALL(INITIALISED, exec, node, child);
    struct node *found = copy_in(exec, node);
    RETURN(found && found->work.type == CHILD && is_handle(child, GRAPH) ? update_child(found, child) : INVALID_VALUE);
}

static int can_be_disabled(const struct node *node) { return node && (node->work.type == KERNEL || node->work.type == COPY || node->work.type == FILL); }

EXPORT int cuGraphNodeSetEnabled(struct handle *exec, struct handle *node, unsigned enabled) {
    CALL(INITIALISED, exec, node, enabled);
    struct node *found = copy_in(exec, node);
    if (!can_be_disabled(found)) RETURN(INVALID_VALUE);
    found->disabled = !enabled;
    RETURN(SUCCESS);
}

EXPORT int cuGraphNodeGetEnabled(struct handle *exec, struct handle *node, unsigned *enabled) {
    CALL(INITIALISED, exec, node, enabled);
    const struct node *found = copy_in(exec, node);
    if (!can_be_disabled(found) || !enabled) RETURN(INVALID_VALUE);
    *enabled = !found->disabled;
    RETURN(SUCCESS);
}

/* ---- attributes of a kernel node ---- */

static struct kernel_work *kernel_of(struct handle *node) {
    return is_handle(node, NODE) && node_of(node)->work.type == KERNEL ? &node_of(node)->work.kernel : NULL;
}

EXPORT int cuGraphKernelNodeGetAttribute(struct handle *node, int attribute, int *value) {
    CALL(INITIALISED, node, attribute, value);
    const struct kernel_work *kernel = kernel_of(node);
    if (!kernel || !value || attribute < 1 || attribute > ATTRIBUTE_LAST) RETURN(INVALID_VALUE);
    memset(value, 0, 64);
    if (attribute == ATTRIBUTE_COOPERATIVE) *value = kernel->cooperative;
    if (attribute == ATTRIBUTE_PRIORITY) *value = kernel->priority;
    RETURN(SUCCESS);
}

EXPORT int cuGraphKernelNodeSetAttribute(struct handle *node, int attribute, const int *value) {
    CALL(INITIALISED, node, attribute, value);
    struct kernel_work *kernel = kernel_of(node);
    if (!kernel || !value || attribute < 1 || attribute > ATTRIBUTE_LAST) RETURN(INVALID_VALUE);
    if (attribute == ATTRIBUTE_CLUSTER) {
        for (int axis = 0; axis < 3; axis++)
            if (value[axis] < 1 || value[axis] > 16) RETURN(INVALID_CLUSTER_SIZE);
        kernel->cluster = (unsigned)value[0] | (unsigned)value[1] << 8 | (unsigned)value[2] << 16;
    }
    if (attribute == ATTRIBUTE_COOPERATIVE) kernel->cooperative = *value != 0;
    if (attribute == ATTRIBUTE_PRIORITY) kernel->priority = *value;
    RETURN(SUCCESS);
}

EXPORT int cuGraphKernelNodeCopyAttributes(struct handle *to, struct handle *from) {
    CALL(INITIALISED, to, from);
    struct kernel_work *target = kernel_of(to);
    const struct kernel_work *source = kernel_of(from);
    if (!target || !source) RETURN(INVALID_VALUE);
    target->cooperative = source->cooperative;
    target->priority = source->priority;
    RETURN(SUCCESS);
}

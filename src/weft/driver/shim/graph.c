/* Graphs: nodes, edges, copies of them. A graph that is instantiated is copied, so that later changes do not reach it. */
#include <stdlib.h>
#include <string.h>

#include "work.h"

static uint64_t nodes_made;

struct node *node_of(struct handle *node) { return node->data; }
struct graph *graph_of(struct handle *graph) { return graph->data; }

struct handle *new_graph(void) {
    struct handle *made = new_handle(GRAPH);
    if (made && !(made->data = calloc(1, sizeof(struct graph)))) {
        free_handle(made);
        made = NULL;
    }
    return made;
}

/* ---- work of nodes ---- */

static void free_work(struct work *work) {
    if (work->type == KERNEL) {
        free(work->kernel.arguments);
        free(work->kernel.pointers);
    }
    struct handle *const *graphs;
    for (size_t i = graphs_in(work, &graphs); i--;)
        if (is_handle(graphs[i], GRAPH)) destroy_graph(graphs[i]);
    if (work->type == CONDITIONAL) free(work->condition.bodies);
    if (work->type == ALLOCATION || work->type == DEALLOCATION) drop_graph_memory(work->memory.address);
}

size_t graphs_in(const struct work *work, struct handle *const **graphs) {
    *graphs = work->type == CHILD ? &work->child : work->type == CONDITIONAL ? work->condition.bodies : NULL;
    return work->type == CHILD ? 1 : *graphs ? work->condition.size : 0;
}

static int copy_work(struct work *to, const struct work *from) {
    *to = *from;
    if (from->type == KERNEL) {
        to->kernel.pointers = NULL;
        if (!(to->kernel.arguments = malloc(from->kernel.bytes + 1))) return OUT_OF_MEMORY;
        if (from->kernel.bytes) memcpy(to->kernel.arguments, from->kernel.arguments, from->kernel.bytes);
    }
    if (from->type == CHILD) return clone_graph(&to->child, from->child);
    if (from->type == CONDITIONAL) return copy_bodies(&to->condition, &from->condition);
    if (from->type == ALLOCATION || from->type == DEALLOCATION) keep_graph_memory(from->memory.address);
    return SUCCESS;
}

int set_work(struct node *node, const struct work *work) {
    struct work made;
    int code = copy_work(&made, work);
    if (code != SUCCESS) return code;
    free_work(&node->work);
    node->work = made;
    return SUCCESS;
}

/* ---- nodes and edges ---- */

int edge_from(struct edge *edges, struct handle *const *nodes, const void *data, size_t count) {
    for (size_t i = 0; i < count; i++) {
        edges[i].from = nodes[i];
        if (data) memcpy(edges[i].data, (const uint8_t *)data + 8 * i, 8);
        if (edges[i].data[1] || edges[i].data[0] > 2 || edges[i].data[2] > 1) return INVALID_VALUE;
    }
    return SUCCESS;
}

int add_edge(struct handle *handle, struct handle *from, const void *data) {
    struct node *node = node_of(handle);
    struct edge edge = {0}, *larger;
    int code = edge_from(&edge, &from, data, 1);
    if (code != SUCCESS) return code;
    for (size_t i = 0; i < node->count; i++)
        if (node->edges[i].from == from) return INVALID_VALUE;
    if (!(larger = realloc(node->edges, (node->count + 1) * sizeof edge))) return OUT_OF_MEMORY;
    node->edges = larger;
    larger[node->count++] = edge;
    return SUCCESS;
}

static void free_node(struct handle *handle) {
    struct node *node = node_of(handle);
    free_work(&node->work);
    free(node->edges);
    free_handle(handle);
}

static int append(struct handle *handle, struct handle *node) {
    struct graph *graph = graph_of(handle);
    if (graph->count == graph->room) {
        size_t room = graph->room ? 2 * graph->room : 16;
        struct handle **larger = realloc(graph->nodes, room * sizeof *larger);
        if (!larger) return OUT_OF_MEMORY;
        graph->nodes = larger;
        graph->room = room;
    }
    node_of(node)->place = graph->count;
    graph->nodes[graph->count++] = node;
    node->owner = handle;
    return SUCCESS;
}

int add_node(struct handle **made, struct handle *graph, const struct edge *edges, size_t count, const struct work *work) {
    struct handle *handle = new_handle(NODE);
    struct node *node = calloc(1, sizeof *node);
    int code = handle && node ? copy_work(&node->work, work) : OUT_OF_MEMORY;
    if (code != SUCCESS) {
        free(node);
        if (handle) free_handle(handle);
        return code;
    }
    handle->data = node;
    handle->id = ++nodes_made;
    struct handle *const *graphs;
    for (size_t i = graphs_in(&node->work, &graphs); i--;) graph_of(graphs[i])->parent = handle;
    for (size_t i = 0; code == SUCCESS && i < count; i++) code = add_edge(handle, edges[i].from, edges[i].data);
    if (code == SUCCESS) code = append(graph, handle);
    if (code != SUCCESS) {
        free_node(handle);
        return code;
    }
    if (made) *made = handle;
    return SUCCESS;
}

static void destroy_node(struct handle *handle) {
    struct graph *graph = graph_of(handle->owner);
    for (size_t at = 0; at < graph->count; at++) {
        struct node *other = node_of(graph->nodes[at]);
        size_t kept = 0;
        for (size_t i = 0; i < other->count; i++)
            if (other->edges[i].from != handle) other->edges[kept++] = other->edges[i];
        other->count = kept;
    }
    for (size_t at = node_of(handle)->place + 1; at < graph->count; at++) {
        graph->nodes[at - 1] = graph->nodes[at];
        node_of(graph->nodes[at - 1])->place = at - 1;
    }
    graph->count--;
    free_node(handle);
}

int has_memory_nodes(const struct graph *graph) {
    for (size_t at = 0; at < graph->count; at++) {
        const struct work *work = &node_of(graph->nodes[at])->work;
        if (work->type == ALLOCATION || work->type == DEALLOCATION) return 1;
        struct handle *const *graphs;
        for (size_t i = graphs_in(work, &graphs); i--;)
            if (has_memory_nodes(graph_of(graphs[i]))) return 1;
    }
    return 0;
}

/* ---- whole graphs ---- */

void destroy_graph(struct handle *handle) {
    struct graph *graph = graph_of(handle);
    for (size_t at = 0; at < graph->count; at++) free_node(graph->nodes[at]);
    drop_objects(graph);
    forget_conditions(handle);
    free(graph->nodes);
    free(graph->order);
    free_handle(handle);
}

int clone_graph(struct handle **made, struct handle *handle) {
    const struct graph *graph = graph_of(handle);
    struct handle *copy = new_graph();
    int code = copy ? share_objects(graph_of(copy), graph) : OUT_OF_MEMORY;
    for (size_t at = 0; code == SUCCESS && at < graph->count; at++) {
        struct handle *node = NULL;
        code = add_node(&node, copy, NULL, 0, &node_of(graph->nodes[at])->work);
        if (code == SUCCESS) node_of(node)->origin = graph->nodes[at]->id;
    }
    for (size_t at = 0; code == SUCCESS && at < graph->count; at++) {
        const struct node *node = node_of(graph->nodes[at]);
        for (size_t i = 0; code == SUCCESS && i < node->count; i++)
            code = add_edge(graph_of(copy)->nodes[at], graph_of(copy)->nodes[node_of(node->edges[i].from)->place], node->edges[i].data);
    }
    if (code != SUCCESS && copy) {
        destroy_graph(copy);
        copy = NULL;
    }
    *made = copy;
    return code;
}

struct handle *find_copy(struct handle *handle, uint64_t origin) {
    const struct graph *graph = graph_of(handle);
    struct handle *found = NULL;
    for (size_t at = 0; !found && at < graph->count; at++) {
        const struct node *node = node_of(graph->nodes[at]);
        if (node->origin == origin) found = graph->nodes[at];
        struct handle *const *graphs;
        for (size_t i = graphs_in(&node->work, &graphs); !found && i--;) found = find_copy(graphs[i], origin);
    }
    return found;
}

EXPORT int cuGraphCreate(struct handle **graph, unsigned flags) {
    CALL(INITIALISED, graph, flags);
    if (!graph || flags) RETURN(INVALID_VALUE);
    *graph = new_graph();
    RETURN(*graph ? SUCCESS : OUT_OF_MEMORY);
}

EXPORT int cuGraphDestroy(struct handle *graph) {
    CALL(INITIALISED, graph);
    if (!is_handle(graph, GRAPH) || graph_of(graph)->parent || graph_of(graph)->captured) RETURN(INVALID_VALUE);
    destroy_graph(graph);
    RETURN(SUCCESS);
}

EXPORT int cuGraphClone(struct handle **copy, struct handle *graph) {
    CALL(INITIALISED, copy, graph);
    if (!copy || !is_handle(graph, GRAPH)) RETURN(INVALID_VALUE);
    RETURN(has_memory_nodes(graph_of(graph)) || has_conditions(graph_of(graph)) ? NOT_SUPPORTED : clone_graph(copy, graph)); /* as documented */
}

EXPORT int cuGraphNodeFindInClone(struct handle **found, struct handle *node, struct handle *copy) {
    CALL(INITIALISED, found, node, copy);
    if (!found || !is_handle(node, NODE) || !is_handle(copy, GRAPH)) RETURN(INVALID_VALUE);
    *found = find_copy(copy, node->id);
    RETURN(*found ? SUCCESS : INVALID_VALUE);
}

EXPORT int cuGraphDestroyNode(struct handle *node) {
    CALL(INITIALISED, node);
    if (!is_handle(node, NODE)) RETURN(INVALID_VALUE);
    if (has_memory_nodes(graph_of(node->owner))) RETURN(NOT_SUPPORTED); /* as documented: for all nodes of such a graph */
    destroy_node(node);
    RETURN(SUCCESS);
}

static int each_edge(struct handle *graph, struct handle *const *from, struct handle *const *to, size_t count) {
    if (!is_handle(graph, GRAPH) || (count && (!from || !to))) return INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (!is_handle(from[i], NODE) || !is_handle(to[i], NODE) || from[i] == to[i]) return INVALID_VALUE;
        if (from[i]->owner != graph || to[i]->owner != graph) return INVALID_VALUE;
    }
    return SUCCESS;
}

EXPORT int cuGraphAddDependencies_v2(struct handle *graph, struct handle *const *from, struct handle *const *to, const void *data, size_t count) {
    CALL(INITIALISED, graph, from, to, data, count);
    int code = each_edge(graph, from, to, count);
    for (size_t i = 0; code == SUCCESS && i < count; i++) code = add_edge(to[i], from[i], data ? (const uint8_t *)data + 8 * i : NULL);
    RETURN(code);
}

EXPORT int cuGraphAddDependencies(struct handle *graph, struct handle *const *from, struct handle *const *to, size_t count) {
    return cuGraphAddDependencies_v2(graph, from, to, NULL, count);
}

static int remove_edge(struct node *node, const struct handle *from) {
    for (size_t i = 0; i < node->count; i++)
        if (node->edges[i].from == from) {
            memmove(&node->edges[i], &node->edges[i + 1], (node->count - i - 1) * sizeof *node->edges);
            node->count--;
            return SUCCESS;
        }
    return INVALID_VALUE;
}

EXPORT int cuGraphRemoveDependencies_v2(struct handle *graph, struct handle *const *from, struct handle *const *to, const void *data, size_t count) {
    CALL(INITIALISED, graph, from, to, data, count);
    int code = each_edge(graph, from, to, count);
    if (code == SUCCESS && count && has_memory_nodes(graph_of(graph))) RETURN(NOT_SUPPORTED); /* as documented */
    for (size_t i = 0; code == SUCCESS && i < count; i++) code = remove_edge(node_of(to[i]), from[i]);
    RETURN(code);
}

EXPORT int cuGraphRemoveDependencies(struct handle *graph, struct handle *const *from, struct handle *const *to, size_t count) {
    return cuGraphRemoveDependencies_v2(graph, from, to, NULL, count);
}

/* Questions about a graph: its nodes, roots and edges; a drawing of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "work.h"

/* What a list of the program receives: up to `room` items; the rest of its places become NULL. */
struct listing {
    struct handle **first, **second;
    uint8_t *data;
    size_t room, found;
    int lossy;
};

static void list(struct listing *listing, struct handle *first, struct handle *second, const uint8_t *data) {
    size_t at = listing->found++;
    if (at >= listing->room) return;
    if (listing->first) listing->first[at] = first;
    if (listing->second) listing->second[at] = second;
    if (data && listing->data) memcpy(listing->data + 8 * at, data, 8);
    for (int byte = 0; data && !listing->data && byte < 8; byte++) listing->lossy |= data[byte];
}

static int finish(struct listing *listing, size_t *count) {
    for (size_t at = listing->found; listing->first && at < listing->room; at++) {
        listing->first[at] = NULL;
        if (listing->second) listing->second[at] = NULL;
    }
    *count = listing->found;
    return listing->first && listing->lossy ? LOSSY_QUERY : SUCCESS;
}

EXPORT int cuGraphGetNodes(struct handle *graph, struct handle **nodes, size_t *count) {
    CALL(INITIALISED, graph, nodes, count);
    if (!is_handle(graph, GRAPH) || !count) RETURN(INVALID_VALUE);
    struct listing listing = {nodes, NULL, NULL, nodes ? *count : 0, 0, 0};
    for (size_t at = 0; at < graph_of(graph)->count; at++) list(&listing, graph_of(graph)->nodes[at], NULL, NULL);
    RETURN(finish(&listing, count));
}

EXPORT int cuGraphGetRootNodes(struct handle *graph, struct handle **nodes, size_t *count) {
    CALL(INITIALISED, graph, nodes, count);
    if (!is_handle(graph, GRAPH) || !count) RETURN(INVALID_VALUE);
    struct listing listing = {nodes, NULL, NULL, nodes ? *count : 0, 0, 0};
    for (size_t at = 0; at < graph_of(graph)->count; at++)
        if (!node_of(graph_of(graph)->nodes[at])->count) list(&listing, graph_of(graph)->nodes[at], NULL, NULL);
    RETURN(finish(&listing, count));
}

EXPORT int cuGraphGetEdges_v2(struct handle *graph, struct handle **from, struct handle **to, void *data, size_t *count) {
    CALL(INITIALISED, graph, from, to, data, count);
    if (!is_handle(graph, GRAPH) || !count || !from != !to) RETURN(INVALID_VALUE);
    struct listing listing = {from, to, data, from ? *count : 0, 0, 0};
    for (size_t at = 0; at < graph_of(graph)->count; at++) {
        const struct node *node = node_of(graph_of(graph)->nodes[at]);
        for (size_t i = 0; i < node->count; i++) list(&listing, node->edges[i].from, graph_of(graph)->nodes[at], node->edges[i].data);
    }
    RETURN(finish(&listing, count));
}

EXPORT int cuGraphGetEdges(struct handle *graph, struct handle **from, struct handle **to, size_t *count) {
    return cuGraphGetEdges_v2(graph, from, to, NULL, count);
}

EXPORT int cuGraphNodeGetDependencies_v2(struct handle *node, struct handle **nodes, void *data, size_t *count) {
    CALL(INITIALISED, node, nodes, data, count);
    if (!is_handle(node, NODE) || !count) RETURN(INVALID_VALUE);
    struct listing listing = {nodes, NULL, data, nodes ? *count : 0, 0, 0};
    for (size_t i = 0; i < node_of(node)->count; i++) list(&listing, node_of(node)->edges[i].from, NULL, node_of(node)->edges[i].data);
    RETURN(finish(&listing, count));
}

EXPORT int cuGraphNodeGetDependencies(struct handle *node, struct handle **nodes, size_t *count) {
    return cuGraphNodeGetDependencies_v2(node, nodes, NULL, count);
}

EXPORT int cuGraphNodeGetDependentNodes_v2(struct handle *node, struct handle **nodes, void *data, size_t *count) {
    CALL(INITIALISED, node, nodes, data, count);
    if (!is_handle(node, NODE) || !count) RETURN(INVALID_VALUE);
    const struct graph *graph = graph_of(node->owner);
    struct listing listing = {nodes, NULL, data, nodes ? *count : 0, 0, 0};
    for (size_t at = 0; at < graph->count; at++) {
        const struct node *other = node_of(graph->nodes[at]);
        for (size_t i = 0; i < other->count; i++)
            if (other->edges[i].from == node) list(&listing, graph->nodes[at], NULL, other->edges[i].data);
    }
    RETURN(finish(&listing, count));
}

EXPORT int cuGraphNodeGetDependentNodes(struct handle *node, struct handle **nodes, size_t *count) {
    return cuGraphNodeGetDependentNodes_v2(node, nodes, NULL, count);
}

EXPORT int cuGraphNodeGetType(struct handle *node, int *type) {
    CALL(INITIALISED, node, type);
    if (!is_handle(node, NODE) || !type) RETURN(INVALID_VALUE);
    *type = node_of(node)->work.type;
    RETURN(SUCCESS);
}

/* ---- a drawing ---- */

static const char *label(const struct work *work) {
    static const char *const names[] = {[KERNEL] = "KERNEL", [COPY] = "MEMCPY", [FILL] = "MEMSET", [HOST] = "HOST", [CHILD] = "GRAPH",
                                        [EMPTY] = "EMPTY", [WAIT_EVENT] = "EVENT_WAIT", [RECORD_EVENT] = "EVENT_RECORD",
                                        [ALLOCATION] = "MEM_ALLOC", [DEALLOCATION] = "MEM_FREE", [CONDITIONAL] = "CONDITIONAL"};
    return names[work->type];
}

static void draw(FILE *file, struct handle *handle, int depth) {
    const struct graph *graph = graph_of(handle);
    fprintf(file, "%s graph_%d_%zx {\n", depth ? "subgraph cluster" : "digraph", depth, (size_t)(uintptr_t)handle);
    for (size_t at = 0; at < graph->count; at++) {
        const struct node *node = node_of(graph->nodes[at]);
        int kernel = node->work.type == KERNEL && is_handle(node->work.kernel.function, FUNCTION);
        fprintf(file, "n%llu [shape=record label=\"{%s|%s}\"];\n", (unsigned long long)graph->nodes[at]->id, label(&node->work),
                kernel ? ((const struct function *)node->work.kernel.function->data)->name : "");
        for (size_t i = 0; i < node->count; i++)
            fprintf(file, "n%llu -> n%llu;\n", (unsigned long long)node->edges[i].from->id, (unsigned long long)graph->nodes[at]->id);
        struct handle *const *graphs;
        size_t held = graphs_in(&node->work, &graphs);
        for (size_t i = 0; i < held; i++) draw(file, graphs[i], depth + 1);
    }
    fputs("}\n", file);
}

EXPORT int cuGraphDebugDotPrint(struct handle *graph, const char *path, unsigned flags) {
    CALL(INITIALISED, graph, path, flags);
    if (!is_handle(graph, GRAPH) || !path) RETURN(INVALID_VALUE);
    FILE *file = fopen(path, "w");
    if (!file) RETURN(304); /* a call of the operating system failed */
    draw(file, graph, 0);
    RETURN(fclose(file) ? 304 : SUCCESS);
}

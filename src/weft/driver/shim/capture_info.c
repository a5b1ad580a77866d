/* Questions about a capture, and changes of what the next node of a stream depends on. */
#include <stdlib.h>
#include <string.h>

#include "capture.h"

EXPORT int cuStreamIsCapturing(struct handle *stream, int *status) {
    CALL(CURRENT, stream, status);
    if (!is_stream(stream)) RETURN(INVALID_HANDLE);
    if (!status) RETURN(INVALID_VALUE);
    const struct frontier *frontier = frontier_of(stream);
    const struct capture *capture = frontier ? frontier->capture : NULL;
    *status = capture ? capture->status : NO_CAPTURE;
    if (!capture && (uintptr_t)stream <= LEGACY_STREAM) RETURN(legacy_in_capture());
    RETURN(SUCCESS);
}

static int capture_info(struct handle *stream, int *status, uint64_t *id, struct handle **graph, struct handle ***nodes, void **data, size_t *count) {
    if (!is_stream(stream)) return INVALID_HANDLE;
    if (!status) return INVALID_VALUE;
    struct frontier *frontier = frontier_of(stream);
    struct capture *capture = frontier ? frontier->capture : NULL;
    *status = capture ? capture->status : NO_CAPTURE;
    if (!capture) return (uintptr_t)stream <= LEGACY_STREAM ? legacy_in_capture() : SUCCESS;
    if (id) *id = capture->id;
    if (graph) *graph = capture->graph;
    free(frontier->shown);
    free(frontier->shown_data);
    frontier->shown = calloc(frontier->count + 1, sizeof *frontier->shown);
    frontier->shown_data = calloc(frontier->count + 1, sizeof frontier->edges->data);
    if (!frontier->shown || !frontier->shown_data) return OUT_OF_MEMORY;
    int plain = 1;
    for (size_t i = 0; i < frontier->count; i++) {
        frontier->shown[i] = frontier->edges[i].from;
        memcpy(frontier->shown_data + 8 * i, frontier->edges[i].data, 8);
        for (int byte = 0; byte < 8; byte++) plain &= !frontier->edges[i].data[byte];
    }
    if (nodes) *nodes = frontier->shown;
    if (data) *data = frontier->shown_data;
    if (count) *count = frontier->count;
    return nodes && !data && !plain ? LOSSY_QUERY : SUCCESS;
}

EXPORT int cuStreamGetCaptureInfo_v2(struct handle *stream, int *status, uint64_t *id, struct handle **graph, struct handle ***nodes, size_t *count) {
    CALL(CURRENT, stream, status, id, graph, nodes, count);
    RETURN(capture_info(stream, status, id, graph, nodes, NULL, count));
}

EXPORT int cuStreamGetCaptureInfo_v3(struct handle *stream, int *status, uint64_t *id, struct handle **graph, struct handle ***nodes, void **data,
                                     size_t *count) {
    CALL(CURRENT, stream, status, id, graph, nodes, data, count);
    RETURN(capture_info(stream, status, id, graph, nodes, data, count));
}

static int update_dependencies(struct handle *stream, struct handle **nodes, const void *data, size_t count, unsigned flags) {
    if (!is_stream(stream)) return INVALID_HANDLE;
    struct frontier *frontier = frontier_of(stream);
    if (!frontier || !frontier->capture) return ILLEGAL_STATE;
    if (frontier->capture->status == INVALIDATED) return STREAM_CAPTURE_INVALIDATED;
    if (flags > 1 || (count && !nodes)) return INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!is_handle(nodes[i], NODE) || nodes[i]->owner != frontier->capture->graph) return INVALID_VALUE;
    struct edge *edges = calloc(count + 1, sizeof *edges);
    int code = edges ? edge_from(edges, nodes, data, count) : OUT_OF_MEMORY;
    if (code == SUCCESS && flags == 1) frontier->count = 0;
    if (code == SUCCESS) code = add_to(frontier, edges, count);
    free(edges);
    return code;
}

EXPORT int cuStreamUpdateCaptureDependencies(struct handle *stream, struct handle **nodes, size_t count, unsigned flags) {
    CALL(CURRENT, stream, nodes, count, flags);
    RETURN(update_dependencies(stream, nodes, NULL, count, flags));
}

EXPORT int cuStreamUpdateCaptureDependencies_v2(struct handle *stream, struct handle **nodes, const void *data, size_t count, unsigned flags) {
    CALL(CURRENT, stream, nodes, data, count, flags);
    RETURN(update_dependencies(stream, nodes, data, count, flags));
}

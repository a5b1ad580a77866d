/* Stream capture: work that a capturing stream is given becomes nodes of a graph. A capture spans the streams that wait
 * for its events. A call that cannot be part of it returns the documented code and invalidates the capture. */
#include <stdlib.h>
#include <string.h>

#include "capture.h"

static struct capture *captures;
static uint64_t captures_made;
static __thread int thread_mode;
static __thread char thread_mark;            /* its address names the thread */
static __thread struct frontier thread_stream; /* of the per-thread default stream */

struct frontier *frontier_of(struct handle *stream) {
    if ((uintptr_t)stream == THREAD_STREAM) return &thread_stream;
    return is_handle(stream, STREAM) ? stream->data : NULL;
}

static struct capture *capture_of(struct handle *stream) {
    const struct frontier *frontier = frontier_of(stream);
    return frontier ? frontier->capture : NULL;
}

static void clear(struct frontier *frontier) {
    free(frontier->edges);
    free(frontier->shown);
    free(frontier->shown_data);
    memset(frontier, 0, sizeof *frontier);
}

static int same_edge(const struct edge *a, const struct edge *b) { return a->from == b->from && memcmp(a->data, b->data, sizeof a->data) == 0; }

int add_to(struct frontier *frontier, const struct edge *edges, size_t count) {
    struct edge *larger = realloc(frontier->edges, (frontier->count + count + 1) * sizeof *larger);
    if (!larger) return OUT_OF_MEMORY;
    frontier->edges = larger;
    for (size_t i = 0; i < count; i++) {
        size_t at = 0;
        while (at < frontier->count && !same_edge(&larger[at], &edges[i])) at++;
        if (at == frontier->count) larger[frontier->count++] = edges[i];
    }
    return SUCCESS;
}

static struct frontier *enter(struct handle *stream, struct capture *capture) {
    if ((uintptr_t)stream != THREAD_STREAM && !stream->data) stream->data = calloc(1, sizeof(struct frontier));
    struct frontier *frontier = frontier_of(stream);
    if (!frontier) return NULL;
    frontier->capture = capture;
    if ((uintptr_t)stream == THREAD_STREAM || !(stream->flags & NON_BLOCKING)) capture->implicit = 1;
    return frontier;
}

static int invalidate(struct capture *capture, int code) {
    if (capture) capture->status = INVALIDATED;
    return code;
}

/* ---- what other calls may do ---- */

int unsafe_in_capture(void) {
    int code = SUCCESS;
    for (struct capture *each = captures; each && thread_mode != RELAXED; each = each->next) {
        int own = each->thread == &thread_mark && each->mode != RELAXED;
        if (own || (thread_mode == GLOBAL && each->mode == GLOBAL)) code = invalidate(each, STREAM_CAPTURE_UNSUPPORTED);
    }
    return code;
}

int legacy_in_capture(void) {
    int code = SUCCESS;
    for (struct capture *each = captures; each; each = each->next)
        if (each->implicit && each->context == current_context()) code = invalidate(each, STREAM_CAPTURE_IMPLICIT);
    return code;
}

int waits_in_capture(void) {
    int code = legacy_in_capture();
    return code ? code : unsafe_in_capture();
}

int context_waits_in_capture(void) {
    int code = SUCCESS;
    for (struct capture *each = captures; each; each = each->next)
        if (each->context == current_context()) code = invalidate(each, STREAM_CAPTURE_UNSUPPORTED);
    return code;
}

int stream_waits_in_capture(struct handle *stream) {
    struct capture *capture = capture_of(stream);
    if (capture) return invalidate(capture, STREAM_CAPTURE_UNSUPPORTED);
    return (uintptr_t)stream <= LEGACY_STREAM ? legacy_in_capture() : SUCCESS;
}

int event_in_capture(struct handle *event) {
    struct frontier *frontier = event->data;
    return frontier && frontier->capture ? invalidate(frontier->capture, CAPTURED_EVENT) : SUCCESS;
}

int is_capturing(struct handle *stream, int *code) {
    const struct capture *capture = capture_of(stream);
    *code = capture && capture->status == INVALIDATED ? STREAM_CAPTURE_INVALIDATED : SUCCESS;
    if (!capture && (uintptr_t)stream <= LEGACY_STREAM) *code = legacy_in_capture();
    return capture != NULL;
}

/* ---- nodes ---- */

int capture_work(struct handle *stream, const struct work *work) {
    struct frontier *frontier = frontier_of(stream);
    struct handle *made = NULL;
    for (size_t i = 0; work->type == KERNEL && work->kernel.programmatic && i < frontier->count; i++)
        if (node_of(frontier->edges[i].from)->work.type == KERNEL) frontier->edges[i].data[0] = frontier->edges[i].data[2] = 1; /* port and type */
    int code = add_node(&made, frontier->capture->graph, frontier->edges, frontier->count, work);
    if (code != SUCCESS) return invalidate(frontier->capture, code);
    frontier->count = 0;
    struct edge edge = {.from = made};
    return add_to(frontier, &edge, 1);
}

int capture_record(struct handle *event, struct handle *stream, int external) {
    if (external) {
        struct work work = {.type = RECORD_EVENT, .event = event};
        return capture_work(stream, &work);
    }
    const struct frontier *frontier = frontier_of(stream);
    if (!event->data && !(event->data = calloc(1, sizeof(struct frontier)))) return OUT_OF_MEMORY;
    struct frontier *kept = event->data;
    clear(kept);
    kept->capture = frontier->capture;
    return add_to(kept, frontier->edges, frontier->count);
}

void forget_record(struct handle *event) {
    if (!event->data) return;
    clear(event->data);
    free(event->data);
    event->data = NULL;
}

int capture_wait(struct handle *stream, struct handle *event, int external) {
    const struct frontier *from = event->data;
    struct capture *into = capture_of(stream), *joined = from ? from->capture : NULL;
    if (external) {
        struct work work = {.type = WAIT_EVENT, .event = event};
        return into ? capture_work(stream, &work) : INVALID_VALUE;
    }
    if (!joined) return into ? invalidate(into, STREAM_CAPTURE_ISOLATION) : SUCCESS;
    if (joined->status == INVALIDATED) return STREAM_CAPTURE_INVALIDATED;
    if (into && into != joined) {
        invalidate(into, 0);
        return invalidate(joined, STREAM_CAPTURE_MERGE);
    }
    if (!into && (uintptr_t)stream <= LEGACY_STREAM) return invalidate(joined, STREAM_CAPTURE_IMPLICIT);
    struct frontier *frontier = enter(stream, joined);
    return frontier ? add_to(frontier, from->edges, from->count) : OUT_OF_MEMORY;
}

/* ---- begin and end ---- */

static int begin(struct handle *stream, struct handle *graph, int mode, struct frontier **made) {
    if (!is_stream(stream)) return INVALID_HANDLE;
    if (mode < GLOBAL || mode > RELAXED) return INVALID_VALUE;
    if ((uintptr_t)stream <= LEGACY_STREAM) return STREAM_CAPTURE_UNSUPPORTED;
    if (capture_of(stream)) return invalidate(capture_of(stream), INVALID_VALUE);
    struct capture *capture = calloc(1, sizeof *capture);
    struct handle *into = graph ? graph : new_graph();
    *made = capture && into ? enter(stream, capture) : NULL;
    if (!*made) {
        free(capture);
        if (into && !graph) destroy_graph(into);
        return OUT_OF_MEMORY;
    }
    capture->id = ++captures_made;
    capture->mode = mode;
    capture->status = ACTIVE;
    capture->graph = into;
    capture->into = graph != NULL;
    capture->origin = stream;
    capture->context = current_context();
    capture->thread = &thread_mark;
    capture->next = captures;
    captures = capture;
    graph_of(into)->captured = 1;
    return SUCCESS;
}

EXPORT int cuStreamBeginCapture_v2(struct handle *stream, int mode) {
    struct frontier *made;
    CALL(CURRENT, stream, mode);
    RETURN(begin(stream, NULL, mode, &made));
}

EXPORT int cuStreamBeginCapture(struct handle *stream) {
    struct frontier *made;
    CALL(CURRENT, stream);
    RETURN(begin(stream, NULL, GLOBAL, &made));
}

EXPORT int cuStreamBeginCaptureToGraph(struct handle *stream, struct handle *graph, struct handle **nodes, const void *data, size_t count, int mode) {
    struct frontier *made;
    CALL(CURRENT, stream, graph, nodes, data, count, mode);
    if (!is_handle(graph, GRAPH) || graph_of(graph)->captured || (count && !nodes)) RETURN(INVALID_VALUE);
    for (size_t i = 0; i < count; i++)
        if (!is_handle(nodes[i], NODE) || nodes[i]->owner != graph) RETURN(INVALID_VALUE);
    struct edge *edges = calloc(count + 1, sizeof *edges);
    int code = edges ? edge_from(edges, nodes, data, count) : OUT_OF_MEMORY;
    if (code == SUCCESS) code = begin(stream, graph, mode, &made);
    if (code == SUCCESS) code = add_to(made, edges, count);
    free(edges);
    RETURN(code);
}

struct leaving {
    const struct capture *capture;
    struct graph *graph; /* NULL: only leave */
    const uint8_t *reached;
    int unjoined;
};

static void check_joined(const struct frontier *frontier, struct leaving *leaving) {
    if (!frontier || frontier->capture != leaving->capture || !leaving->reached) return;
    for (size_t i = 0; i < frontier->count; i++)
        if (!leaving->reached[node_of(frontier->edges[i].from)->place]) leaving->unjoined = 1;
}

static void check_stream(struct handle *stream, void *with) { check_joined(stream->data, with); }

static void leave(struct handle *handle, void *with) {
    struct frontier *frontier = handle->data;
    if (frontier && frontier->capture == ((struct leaving *)with)->capture) clear(frontier);
}

/* Returns whether a stream of the capture ended in nodes that the origin does not wait for. */
static int unjoined(struct capture *capture, const struct frontier *origin) {
    struct graph *graph = graph_of(capture->graph);
    uint8_t *reached = calloc(graph->count + 1, 1);
    struct leaving leaving = {capture, graph, reached, 0};
    if (!reached) return 1;
    for (size_t i = 0; i < origin->count; i++) reached[node_of(origin->edges[i].from)->place] = 1;
    for (size_t at = graph->count; at--;) { /* a captured node depends on earlier ones only */
        const struct node *node = node_of(graph->nodes[at]);
        for (size_t i = 0; reached[at] && i < node->count; i++) reached[node_of(node->edges[i].from)->place] = 1;
    }
    each_handle(STREAM, check_stream, &leaving);
    check_joined(&thread_stream, &leaving);
    check_joined(&capture->left, &leaving);
    free(reached);
    return leaving.unjoined;
}

static void finish(struct capture *capture) {
    struct leaving leaving = {.capture = capture};
    each_handle(STREAM, leave, &leaving);
    each_handle(EVENT, leave, &leaving);
    if (thread_stream.capture == capture) clear(&thread_stream);
    for (struct capture **at = &captures; *at; at = &(*at)->next)
        if (*at == capture) {
            *at = capture->next;
            break;
        }
    clear(&capture->left);
    free(capture);
}

EXPORT int cuStreamEndCapture(struct handle *stream, struct handle **graph) {
    CALL(CURRENT, stream, graph);
    if (!is_stream(stream)) RETURN(INVALID_HANDLE);
    struct capture *capture = capture_of(stream);
    if (!graph && !(capture && capture->into)) RETURN(INVALID_VALUE); /* a program knows the graph that it captures into */
    if (graph) *graph = NULL;
    if (!capture) RETURN(ILLEGAL_STATE);
    if (capture->origin != stream) RETURN(invalidate(capture, STREAM_CAPTURE_UNMATCHED));
    if (capture->thread != &thread_mark && capture->mode != RELAXED) RETURN(invalidate(capture, STREAM_CAPTURE_WRONG_THREAD));
    int code = capture->status == INVALIDATED ? STREAM_CAPTURE_INVALIDATED : unjoined(capture, frontier_of(stream)) ? STREAM_CAPTURE_UNJOINED : SUCCESS;
    graph_of(capture->graph)->captured = 0;
    if (code == SUCCESS && graph) *graph = capture->graph;
    if (code != SUCCESS && !capture->into) destroy_graph(capture->graph);
    finish(capture);
    RETURN(code);
}

/* A capture whose origin is destroyed cannot end; a stream that only joined leaves its last nodes behind. */
void forget_capture(struct handle *stream) {
    struct capture *capture = capture_of(stream);
    if (!capture) return;
    if (capture->origin == stream) {
        graph_of(capture->graph)->captured = 0;
        if (!capture->into) destroy_graph(capture->graph);
        finish(capture);
        return;
    }
    const struct frontier *frontier = stream->data;
    capture->left.capture = capture;
    if (add_to(&capture->left, frontier->edges, frontier->count) != SUCCESS) capture->status = INVALIDATED;
    clear(stream->data);
}

EXPORT int cuThreadExchangeStreamCaptureMode(int *mode) {
    CALL(INITIALISED, mode);
    if (!mode || *mode < GLOBAL || *mode > RELAXED) RETURN(INVALID_VALUE);
    int before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    RETURN(SUCCESS);
}

/* Streams and events. Every call is done when it returns, so a stream has no queue: it promises order, never overlap.
 * Events hold the host's time. */
#include <stdlib.h>

#include "shim.h"

#define NON_BLOCKING 1u
#define EVENT_FLAGS 7u
#define NO_TIMING 2u
#define RECORDED 0x100u /* ours, in the flags of an event's handle */

/* The null stream, the legacy and the per-thread default stream are numbers, not handles. */
int is_stream(const struct handle *stream) { return (uintptr_t)stream <= 2 || is_handle(stream, STREAM); }

static int create_stream(struct handle **stream, unsigned flags, int priority) {
    if (!stream || flags & ~NON_BLOCKING) return INVALID_VALUE;
    struct handle *made = new_handle(STREAM);
    if (!made) return OUT_OF_MEMORY;
    made->flags = flags;
    made->owner = current_context();
    made->id = (uint64_t)(int64_t)(priority > 0 ? 0 : priority < -5 ? -5 : priority);
    *stream = made;
    return SUCCESS;
}

EXPORT int cuStreamCreate(struct handle **stream, unsigned flags) {
    CALL(CURRENT, stream, flags);
    RETURN(create_stream(stream, flags, 0));
}

EXPORT int cuStreamCreateWithPriority(struct handle **stream, unsigned flags, int priority) {
    CALL(CURRENT, stream, flags, priority);
    RETURN(create_stream(stream, flags, priority));
}

EXPORT int cuStreamDestroy_v2(struct handle *stream) {
    CALL(INITIALISED, stream);
    if (!is_handle(stream, STREAM)) RETURN(INVALID_HANDLE);
    free_handle(stream);
    RETURN(SUCCESS);
}

/* A stream that the program made knows its context; the default streams are those of the current one. */
static enum need needs_context(const struct handle *stream) { return (uintptr_t)stream <= 2 ? CURRENT : INITIALISED; }

static int fault_of(const struct handle *stream) { return current_context() ? fault() : fault_in(stream->owner); }

EXPORT int cuStreamSynchronize(struct handle *stream) {
    CALL(needs_context(stream), stream);
    RETURN(is_stream(stream) ? fault_of(stream) : INVALID_HANDLE);
}

EXPORT int cuStreamQuery(struct handle *stream) {
    CALL(needs_context(stream), stream);
    RETURN(is_stream(stream) ? fault_of(stream) : INVALID_HANDLE);
}

EXPORT int cuStreamWaitEvent(struct handle *stream, struct handle *event, unsigned flags) {
    CALL(CURRENT, stream, event, flags);
    if (!is_stream(stream) || !is_handle(event, EVENT)) RETURN(INVALID_HANDLE);
    RETURN(flags > 1 ? INVALID_VALUE : SUCCESS);
}

EXPORT int cuStreamGetFlags(struct handle *stream, unsigned *flags) {
    CALL(CURRENT, stream, flags);
    if (!is_stream(stream)) RETURN(INVALID_HANDLE);
    if (!flags) RETURN(INVALID_VALUE);
    *flags = is_handle(stream, STREAM) ? stream->flags : 0;
    RETURN(SUCCESS);
}

EXPORT int cuStreamGetPriority(struct handle *stream, int *priority) {
    CALL(CURRENT, stream, priority);
    if (!is_stream(stream)) RETURN(INVALID_HANDLE);
    if (!priority) RETURN(INVALID_VALUE);
    *priority = is_handle(stream, STREAM) ? (int)(int64_t)stream->id : 0;
    RETURN(SUCCESS);
}

EXPORT int cuStreamGetId(struct handle *stream, uint64_t *id) {
    CALL(CURRENT, stream, id);
    if (!is_stream(stream)) RETURN(INVALID_HANDLE);
    if (!id) RETURN(INVALID_VALUE);
    *id = (uint64_t)(uintptr_t)stream;
    RETURN(SUCCESS);
}

EXPORT int cuStreamGetDevice(struct handle *stream, int *which) {
    CALL(CURRENT, stream, which);
    if (!is_stream(stream)) RETURN(INVALID_HANDLE);
    if (!which) RETURN(INVALID_VALUE);
    *which = 0;
    RETURN(SUCCESS);
}

EXPORT int cuStreamGetCtx(struct handle *stream, struct handle **context) {
    CALL(CURRENT, stream, context);
    if (!is_stream(stream)) RETURN(INVALID_HANDLE);
    if (!context) RETURN(INVALID_VALUE);
    *context = is_handle(stream, STREAM) ? stream->owner : current_context();
    RETURN(SUCCESS);
}

EXPORT int cuStreamGetCtx_v2(struct handle *stream, struct handle **context, void **green) {
    if (green) *green = NULL;
    return cuStreamGetCtx(stream, context);
}

EXPORT int cuStreamIsCapturing(struct handle *stream, int *status) {
    CALL(CURRENT, stream, status);
    if (!is_stream(stream)) RETURN(INVALID_HANDLE);
    if (!status) RETURN(INVALID_VALUE);
    *status = 0;
    RETURN(SUCCESS);
}

EXPORT int cuStreamGetCaptureInfo_v2(struct handle *stream, int *status, uint64_t *id, void **graph, void **nodes, size_t *count) {
    CALL(CURRENT, stream, status, id, graph, nodes, count);
    if (!is_stream(stream)) RETURN(INVALID_HANDLE);
    if (!status) RETURN(INVALID_VALUE);
    *status = 0;
    RETURN(SUCCESS);
}

EXPORT int cuStreamGetCaptureInfo_v3(struct handle *stream, int *status, uint64_t *id, void **graph, void **nodes, void **edges, size_t *count) {
    return cuStreamGetCaptureInfo_v2(stream, status, id, graph, nodes, count);
}

EXPORT int cuThreadExchangeStreamCaptureMode(int *mode) {
    static __thread int current;
    CALL(INITIALISED, mode);
    if (!mode || *mode < 0 || *mode > 2) RETURN(INVALID_VALUE);
    int before = current;
    current = *mode;
    *mode = before;
    RETURN(SUCCESS);
}

EXPORT int cuLaunchHostFunc(struct handle *stream, void (*function)(void *), void *data) {
    CALL(CURRENT, stream, function, data);
    if (!is_stream(stream)) RETURN(INVALID_HANDLE);
    if (!function) RETURN(INVALID_VALUE);
    if (fault()) RETURN(fault());
    release_call(&call);
    function(data);
    RETURN(SUCCESS);
}

EXPORT int cuStreamAddCallback(struct handle *stream, void (*function)(struct handle *, int, void *), void *data, unsigned flags) {
    CALL(CURRENT, stream, function, data, flags);
    if (!is_stream(stream)) RETURN(INVALID_HANDLE);
    if (!function || flags) RETURN(INVALID_VALUE);
    int status = fault();
    release_call(&call);
    function(stream, status, data);
    RETURN(SUCCESS);
}

/* Streams do not overlap, so that managed memory need not belong to one. */
EXPORT int cuStreamAttachMemAsync(struct handle *stream, uint64_t address, size_t bytes, unsigned flags) {
    CALL(CURRENT, stream, address, bytes, flags);
    if (!is_stream(stream)) RETURN(INVALID_HANDLE);
    const struct allocation *found = find_allocation(address);
    RETURN(found && found->type == MANAGED_MEMORY && (flags == 1 || flags == 2 || flags == 4) ? SUCCESS : INVALID_VALUE);
}

/* ---- events ---- */

EXPORT int cuEventCreate(struct handle **event, unsigned flags) {
    CALL(CURRENT, event, flags);
    if (!event || flags & ~EVENT_FLAGS) RETURN(INVALID_VALUE);
    if (flags & 4u) RETURN(refuse("cuEventCreate", "CU_EVENT_INTERPROCESS: memory and events of other processes are not supported"));
    struct handle *made = new_handle(EVENT);
    if (!made) RETURN(OUT_OF_MEMORY);
    made->flags = flags;
    made->owner = current_context();
    *event = made;
    RETURN(SUCCESS);
}

EXPORT int cuEventDestroy_v2(struct handle *event) {
    CALL(INITIALISED, event);
    if (!is_handle(event, EVENT)) RETURN(INVALID_HANDLE);
    free_handle(event);
    RETURN(SUCCESS);
}

static int record(struct handle *event, struct handle *stream) {
    if (!is_handle(event, EVENT) || !is_stream(stream)) return INVALID_HANDLE;
    event->id = now_ns();
    event->flags |= RECORDED;
    return SUCCESS;
}

EXPORT int cuEventRecord(struct handle *event, struct handle *stream) {
    CALL(CURRENT, event, stream);
    RETURN(record(event, stream));
}

EXPORT int cuEventRecordWithFlags(struct handle *event, struct handle *stream, unsigned flags) {
    CALL(CURRENT, event, stream, flags);
    RETURN(flags > 1 ? INVALID_VALUE : record(event, stream));
}

EXPORT int cuEventSynchronize(struct handle *event) {
    CALL(CURRENT, event);
    RETURN(is_handle(event, EVENT) ? fault() : INVALID_HANDLE);
}

EXPORT int cuEventQuery(struct handle *event) {
    CALL(CURRENT, event);
    RETURN(is_handle(event, EVENT) ? fault() : INVALID_HANDLE);
}

EXPORT int cuEventElapsedTime_v2(float *milliseconds, struct handle *start, struct handle *end) {
    CALL(CURRENT, milliseconds, start, end);
    if (!milliseconds) RETURN(INVALID_VALUE);
    if (!is_handle(start, EVENT) || !is_handle(end, EVENT)) RETURN(INVALID_HANDLE);
    if (!(start->flags & RECORDED) || !(end->flags & RECORDED)) RETURN(INVALID_HANDLE);
    if ((start->flags | end->flags) & NO_TIMING) RETURN(INVALID_HANDLE);
    if (fault()) RETURN(fault());
    *milliseconds = (float)((double)(int64_t)(end->id - start->id) / 1e6);
    RETURN(SUCCESS);
}

EXPORT int cuEventElapsedTime(float *milliseconds, struct handle *start, struct handle *end) {
    return cuEventElapsedTime_v2(milliseconds, start, end);
}

/* Streams and events. Every call is done when it returns, so a stream has no queue: it promises order, never overlap.
 * Events hold the host's time, or with --clock model the estimates of the launches before them. */
#include <stdlib.h>

#include "work.h"

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
    forget_capture(stream);
    free_handle(stream);
    RETURN(SUCCESS);
}

int submit(struct handle *stream, const struct work *work) {
    if (!is_stream(stream)) return INVALID_HANDLE;
    int code, capturing = is_capturing(stream, &code);
    if (code != SUCCESS) return code;
    return capturing ? capture_work(stream, work) : run_work(work);
}

/* A stream that the program made knows its context; the default streams are those of the current one. */
static enum need needs_context(const struct handle *stream) { return (uintptr_t)stream <= 2 ? CURRENT : INITIALISED; }

static int wait_for_stream(struct handle *stream) {
    if (!is_stream(stream)) return INVALID_HANDLE;
    int barred = stream_waits_in_capture(stream);
    if (barred) return barred;
    return current_context() ? fault() : fault_in(stream->owner);
}

EXPORT int cuStreamSynchronize(struct handle *stream) {
    CALL(needs_context(stream), stream);
    RETURN(wait_for_stream(stream));
}

EXPORT int cuStreamQuery(struct handle *stream) {
    CALL(needs_context(stream), stream);
    RETURN(wait_for_stream(stream));
}

EXPORT int cuStreamWaitEvent(struct handle *stream, struct handle *event, unsigned flags) {
    CALL(CURRENT, stream, event, flags);
    if (!is_stream(stream) || !is_handle(event, EVENT)) RETURN(INVALID_HANDLE);
    if (flags > 1) RETURN(INVALID_VALUE);
    int code;
    is_capturing(stream, &code);
    RETURN(code ? code : capture_wait(stream, event, flags == 1));
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
    *which = is_handle(stream, STREAM) ? device_of_context(stream->owner) : device_number();
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

EXPORT int cuLaunchHostFunc(struct handle *stream, void (*function)(void *), void *data) {
    CALL(CURRENT, stream, function, data);
    if (!is_stream(stream)) RETURN(INVALID_HANDLE);
    if (!function) RETURN(INVALID_VALUE);
    if (fault()) RETURN(fault());
    int code, capturing = is_capturing(stream, &code);
    struct work work = {.type = HOST, .host = {function, data}};
    if (capturing || code) RETURN(code ? code : capture_work(stream, &work));
    release_call(&call);
    function(data);
    RETURN(SUCCESS);
}

EXPORT int cuStreamAddCallback(struct handle *stream, void (*function)(struct handle *, int, void *), void *data, unsigned flags) {
    CALL(CURRENT, stream, function, data, flags);
    if (!is_stream(stream)) RETURN(INVALID_HANDLE);
    if (!function || flags) RETURN(INVALID_VALUE);
    int barred = stream_waits_in_capture(stream), status = fault();
    if (barred) RETURN(barred);
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
    forget_record(event);
    free_handle(event);
    RETURN(SUCCESS);
}

void record_now(struct handle *event) {
    event->id = by_model ? model_ns : now_ns();
    event->flags |= RECORDED;
}

static int record(struct handle *event, struct handle *stream, int external) {
    if (!is_handle(event, EVENT) || !is_stream(stream)) return INVALID_HANDLE;
    int code, capturing = is_capturing(stream, &code);
    if (code != SUCCESS) return code;
    if (capturing) return capture_record(event, stream, external);
    if (external) return INVALID_VALUE; /* as documented: a node of a capture only */
    forget_record(event);
    record_now(event);
    return SUCCESS;
}

EXPORT int cuEventRecord(struct handle *event, struct handle *stream) {
    CALL(CURRENT, event, stream);
    RETURN(record(event, stream, 0));
}

EXPORT int cuEventRecordWithFlags(struct handle *event, struct handle *stream, unsigned flags) {
    CALL(CURRENT, event, stream, flags);
    RETURN(flags > 1 ? INVALID_VALUE : record(event, stream, flags == 1));
}

static int wait_for_event(struct handle *event) {
    if (!is_handle(event, EVENT)) return INVALID_HANDLE;
    int barred = event_in_capture(event);
    return barred ? barred : fault();
}

EXPORT int cuEventSynchronize(struct handle *event) {
    CALL(CURRENT, event);
    RETURN(wait_for_event(event));
}

EXPORT int cuEventQuery(struct handle *event) {
    CALL(CURRENT, event);
    int barred = unsafe_in_capture();
    RETURN(barred ? barred : wait_for_event(event));
}

EXPORT int cuEventElapsedTime_v2(float *milliseconds, struct handle *start, struct handle *end) {
    CALL(CURRENT, milliseconds, start, end);
    if (!milliseconds) RETURN(INVALID_VALUE);
    if (!is_handle(start, EVENT) || !is_handle(end, EVENT)) RETURN(INVALID_HANDLE);
    if (event_in_capture(start) || event_in_capture(end)) RETURN(CAPTURED_EVENT);
    if (!(start->flags & RECORDED) || !(end->flags & RECORDED)) RETURN(INVALID_HANDLE);
    if ((start->flags | end->flags) & NO_TIMING) RETURN(INVALID_HANDLE);
    if (fault()) RETURN(fault());
    *milliseconds = (float)((double)(int64_t)(end->id - start->id) / 1e6);
    RETURN(SUCCESS);
}

EXPORT int cuEventElapsedTime(float *milliseconds, struct handle *start, struct handle *end) {
    return cuEventElapsedTime_v2(milliseconds, start, end);
}

/* A capture and the streams in it: what capture.c and capture_info.c share. */
#ifndef WEFT_CAPTURE_H
#define WEFT_CAPTURE_H

#include "work.h"

enum mode { GLOBAL, THREAD_LOCAL, RELAXED };
enum status { NO_CAPTURE, ACTIVE, INVALIDATED };
enum { LEGACY_STREAM = 1, THREAD_STREAM = 2, NON_BLOCKING = 1 };

struct capture;

/* The last nodes of a stream or of a captured event. */
struct frontier {
    struct capture *capture;
    struct edge *edges;
    struct handle **shown; /* what cuStreamGetCaptureInfo hands out */
    uint8_t *shown_data;
    size_t count;
};

struct capture {
    uint64_t id;
    int mode, status;
    int implicit; /* the legacy stream would have to wait for one of its streams */
    struct handle *graph, *origin, *context;
    const void *thread;
    int into; /* a graph of the program */
    struct frontier left; /* by streams that were destroyed */
    struct capture *next;
};

/* Returns the last nodes of a stream; NULL for the legacy stream and for one that never captured. */
struct frontier *frontier_of(struct handle *stream);
int add_to(struct frontier *frontier, const struct edge *edges, size_t count);
/* Returns the error of a use of the legacy stream, which invalidates captures of its context. */
int legacy_in_capture(void);

#endif

/* Copies and memsets: made by the child, without a request. The ranges they write ride with the next request, so that
 * initcheck knows them. */
#include <string.h>

#include "work.h"

int copy_bytes(uint64_t to, uint64_t from, size_t bytes) {
    if (fault()) return fault();
    if (!bytes) return SUCCESS;
    void *target = view_of(to, bytes);
    const void *source = view_of(from, bytes);
    if (!target || !source) return INVALID_VALUE;
    memmove(target, source, bytes);
    if (in_window(to)) wrote(to, bytes);
    return SUCCESS;
}

/* The side that is named "device" must be device memory: a host pointer there is a mistake of the program. */
static int copy_checked(uint64_t to, uint64_t from, size_t bytes, int to_device, int from_device) {
    if (bytes && ((to_device && !in_window(to)) || (from_device && !in_window(from)))) return INVALID_VALUE;
    return copy_bytes(to, from, bytes);
}

/* A straight copy as the box that a node of a graph holds. */
static struct work straight(uint64_t to, uint64_t from, size_t bytes, int to_type, int from_type) {
    return (struct work){.type = COPY,
                         .copy = {.from_type = from_type, .from_host = from_type == HOST_TYPE ? (const void *)(uintptr_t)from : NULL,
                                  .from_device = from_type == HOST_TYPE ? 0 : from, .to_type = to_type,
                                  .to_host = to_type == HOST_TYPE ? (void *)(uintptr_t)to : NULL, .to_device = to_type == HOST_TYPE ? 0 : to,
                                  .from_pitch = bytes, .to_pitch = bytes, .width = bytes, .height = 1, .depth = 1}};
}

#define COPY_NOW(name, to_kind, from_kind, to_device, from_device)                                                       \
    EXPORT int name(to_kind to, from_kind from, size_t bytes) {                                                       \
        CALL(CURRENT, to, from, bytes);                                                                              \
        int barred = waits_in_capture();                                                                             \
        RETURN(barred ? barred : copy_checked((uint64_t)to, (uint64_t)from, bytes, to_device, from_device));         \
    }
#define COPY_ASYNC(name, to_kind, from_kind, to_type, from_type)                                                 \
    EXPORT int name(to_kind to, from_kind from, size_t bytes, struct handle *stream) {                                \
        CALL(CURRENT, to, from, bytes, stream);                                                                      \
        struct work work = straight((uint64_t)to, (uint64_t)from, bytes, to_type, from_type);                        \
        RETURN(submit(stream, &work));                                                                               \
    }

COPY_NOW(cuMemcpy, uint64_t, uint64_t, 0, 0)
COPY_NOW(cuMemcpyHtoD_v2, uint64_t, const void *, 1, 0)
COPY_NOW(cuMemcpyDtoH_v2, void *, uint64_t, 0, 1)
COPY_NOW(cuMemcpyDtoD_v2, uint64_t, uint64_t, 1, 1)
COPY_ASYNC(cuMemcpyAsync, uint64_t, uint64_t, UNIFIED_TYPE, UNIFIED_TYPE)
COPY_ASYNC(cuMemcpyHtoDAsync_v2, uint64_t, const void *, DEVICE_TYPE, HOST_TYPE)
COPY_ASYNC(cuMemcpyDtoHAsync_v2, void *, uint64_t, HOST_TYPE, DEVICE_TYPE)
COPY_ASYNC(cuMemcpyDtoDAsync_v2, uint64_t, uint64_t, DEVICE_TYPE, DEVICE_TYPE)

EXPORT int cuMemcpyPeer(uint64_t to, struct handle *there, uint64_t from, struct handle *here, size_t bytes) {
    CALL(CURRENT, to, there, from, here, bytes);
    int barred = waits_in_capture();
    RETURN(barred ? barred : copy_checked(to, from, bytes, 1, 1));
}

EXPORT int cuMemcpyPeerAsync(uint64_t to, struct handle *there, uint64_t from, struct handle *here, size_t bytes, struct handle *stream) {
    CALL(CURRENT, to, there, from, here, bytes, stream);
    struct work work = straight(to, from, bytes, DEVICE_TYPE, DEVICE_TYPE);
    RETURN(submit(stream, &work));
}

/* ---- rectangles ---- */

struct copy_2d {
    size_t from_x, from_y;
    int from_type;
    const void *from_host;
    uint64_t from_device;
    void *from_array;
    size_t from_pitch, to_x, to_y;
    int to_type;
    void *to_host;
    uint64_t to_device;
    void *to_array;
    size_t to_pitch, width, height;
};

static uint64_t side(int type, const void *host, uint64_t address) { return type == HOST_TYPE ? (uint64_t)host : address; }

static size_t from_pitch_of(const struct copy_3d *box) { return box->from_pitch ? box->from_pitch : box->from_x + box->width; }
static size_t to_pitch_of(const struct copy_3d *box) { return box->to_pitch ? box->to_pitch : box->to_x + box->width; }

int check_copy(const struct copy_3d *box) {
    if (box->from_type == ARRAY_TYPE || box->to_type == ARRAY_TYPE) return refuse("cuMemcpy3D", "CUDA arrays are not supported");
    if (box->from_type < HOST_TYPE || box->from_type > UNIFIED_TYPE || box->to_type < HOST_TYPE || box->to_type > UNIFIED_TYPE) return INVALID_VALUE;
    return from_pitch_of(box) < box->width || to_pitch_of(box) < box->width ? INVALID_VALUE : SUCCESS;
}

int run_copy(const struct copy_3d *box) {
    int code = check_copy(box);
    if (code != SUCCESS) return code;
    if (!box->width || !box->height || !box->depth) return fault();
    size_t from_pitch = from_pitch_of(box), to_pitch = to_pitch_of(box);
    size_t from_plane = from_pitch * (box->from_height ? box->from_height : box->from_y + box->height);
    size_t to_plane = to_pitch * (box->to_height ? box->to_height : box->to_y + box->height);
    uint64_t from = side(box->from_type, box->from_host, box->from_device) + box->from_z * from_plane + box->from_y * from_pitch + box->from_x;
    uint64_t to = side(box->to_type, box->to_host, box->to_device) + box->to_z * to_plane + box->to_y * to_pitch + box->to_x;
    for (size_t z = 0; z < box->depth; z++)
        for (size_t y = 0; y < box->height; y++) {
            code = copy_checked(to + z * to_plane + y * to_pitch, from + z * from_plane + y * from_pitch, box->width, box->to_type == DEVICE_TYPE,
                                    box->from_type == DEVICE_TYPE);
            if (code != SUCCESS) return code;
        }
    return SUCCESS;
}

static struct work rectangle(const struct copy_2d *given) {
    return (struct work){.type = COPY,
                         .copy = {
                             .from_x = given->from_x, .from_y = given->from_y, .from_type = given->from_type, .from_host = given->from_host,
                             .from_device = given->from_device, .from_pitch = given->from_pitch,
                             .to_x = given->to_x, .to_y = given->to_y, .to_type = given->to_type, .to_host = given->to_host,
                             .to_device = given->to_device, .to_pitch = given->to_pitch,
                             .width = given->width, .height = given->height, .depth = 1,
                         }};
}

static int copy_rectangle(const struct copy_2d *given) {
    if (!given) return INVALID_VALUE;
    struct work work = rectangle(given);
    int barred = waits_in_capture();
    return barred ? barred : run_copy(&work.copy);
}

EXPORT int cuMemcpy2D_v2(const struct copy_2d *given) {
    CALL(CURRENT, given);
    RETURN(copy_rectangle(given));
}

EXPORT int cuMemcpy2DUnaligned_v2(const struct copy_2d *given) {
    CALL(CURRENT, given);
    RETURN(copy_rectangle(given));
}

EXPORT int cuMemcpy2DAsync_v2(const struct copy_2d *given, struct handle *stream) {
    CALL(CURRENT, given, stream);
    if (!given) RETURN(INVALID_VALUE);
    struct work work = rectangle(given);
    RETURN(submit(stream, &work));
}

EXPORT int cuMemcpy3D_v2(const struct copy_3d *given) {
    CALL(CURRENT, given);
    if (!given) RETURN(INVALID_VALUE);
    int barred = waits_in_capture();
    RETURN(barred ? barred : run_copy(given));
}

EXPORT int cuMemcpy3DAsync_v2(const struct copy_3d *given, struct handle *stream) {
    CALL(CURRENT, given, stream);
    if (!given) RETURN(INVALID_VALUE);
    struct work work = {.type = COPY, .copy = *given};
    RETURN(submit(stream, &work));
}

/* ---- memset ---- */

int check_fill(const struct fill_work *fill) {
    if (fill->element != 1 && fill->element != 2 && fill->element != 4) return INVALID_VALUE;
    if (!fill->width || !fill->height) return SUCCESS;
    if (!in_window(fill->to) || fill->to % fill->element || fill->width > SIZE_MAX / fill->element) return INVALID_VALUE;
    return fill->height > 1 && (fill->pitch < fill->width * fill->element || fill->pitch % fill->element) ? INVALID_VALUE : SUCCESS;
}

int run_fill(const struct fill_work *fill) {
    if (fault()) return fault();
    int code = check_fill(fill);
    if (code != SUCCESS) return code;
    size_t bytes = fill->width * fill->element;
    for (size_t y = 0; bytes && y < fill->height; y++) {
        uint8_t *row = view_of(fill->to + y * fill->pitch, bytes);
        if (!row) return INVALID_VALUE;
        if (fill->element == 1)
            memset(row, (int)(fill->value & 255u), bytes);
        else
            for (size_t at = 0; at < bytes; at += fill->element) memcpy(row + at, &fill->value, fill->element);
        wrote(fill->to + y * fill->pitch, bytes);
    }
    return SUCCESS;
}

static int submit_fill(struct handle *stream, struct fill_work fill) {
    struct work work = {.type = FILL, .fill = fill};
    return submit(stream, &work);
}

#define FILL_CALLS(bits, type)                                                                                       \
    EXPORT int cuMemsetD##bits##_v2(uint64_t to, type value, size_t number) {                                         \
        CALL(CURRENT, to, value, number);                                                                            \
        RETURN(submit_fill(NULL, (struct fill_work){to, 0, value, bits / 8, number, 1}));                            \
    }                                                                                                                \
    EXPORT int cuMemsetD##bits##Async(uint64_t to, type value, size_t number, struct handle *stream) {                \
        CALL(CURRENT, to, value, number, stream);                                                                    \
        RETURN(submit_fill(stream, (struct fill_work){to, 0, value, bits / 8, number, 1}));                          \
    }                                                                                                                \
    EXPORT int cuMemsetD2D##bits##_v2(uint64_t to, size_t pitch, type value, size_t width, size_t height) {           \
        CALL(CURRENT, to, pitch, value, width, height);                                                              \
        RETURN(submit_fill(NULL, (struct fill_work){to, pitch, value, bits / 8, width, height}));                    \
    }                                                                                                                \
    EXPORT int cuMemsetD2D##bits##Async(uint64_t to, size_t pitch, type value, size_t width, size_t height, struct handle *stream) { \
        CALL(CURRENT, to, pitch, value, width, height, stream);                                                      \
        RETURN(submit_fill(stream, (struct fill_work){to, pitch, value, bits / 8, width, height}));                  \
    }

FILL_CALLS(8, uint8_t)
FILL_CALLS(16, uint16_t)
FILL_CALLS(32, uint32_t)

/* Copies and memsets: made by the child, without a request. The ranges they write ride with the next request, so that
 * initcheck knows them. */
#include <string.h>

#include "shim.h"

static int copy(uint64_t to, uint64_t from, size_t bytes) {
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
    return copy(to, from, bytes);
}

#define COPY(name, to_type, from_type, to_device, from_device)                                                       \
    EXPORT int name(to_type to, from_type from, size_t bytes) {                                                       \
        CALL(CURRENT, to, from, bytes);                                                                              \
        RETURN(copy_checked((uint64_t)to, (uint64_t)from, bytes, to_device, from_device));                           \
    }
#define COPY_ASYNC(name, to_type, from_type, to_device, from_device)                                                 \
    EXPORT int name(to_type to, from_type from, size_t bytes, struct handle *stream) {                                \
        CALL(CURRENT, to, from, bytes, stream);                                                                      \
        if (!is_stream(stream)) RETURN(INVALID_HANDLE);                                                              \
        RETURN(copy_checked((uint64_t)to, (uint64_t)from, bytes, to_device, from_device));                           \
    }

COPY(cuMemcpy, uint64_t, uint64_t, 0, 0)
COPY(cuMemcpyHtoD_v2, uint64_t, const void *, 1, 0)
COPY(cuMemcpyDtoH_v2, void *, uint64_t, 0, 1)
COPY(cuMemcpyDtoD_v2, uint64_t, uint64_t, 1, 1)
COPY_ASYNC(cuMemcpyAsync, uint64_t, uint64_t, 0, 0)
COPY_ASYNC(cuMemcpyHtoDAsync_v2, uint64_t, const void *, 1, 0)
COPY_ASYNC(cuMemcpyDtoHAsync_v2, void *, uint64_t, 0, 1)
COPY_ASYNC(cuMemcpyDtoDAsync_v2, uint64_t, uint64_t, 1, 1)

EXPORT int cuMemcpyPeer(uint64_t to, struct handle *there, uint64_t from, struct handle *here, size_t bytes) {
    CALL(CURRENT, to, there, from, here, bytes);
    RETURN(copy_checked(to, from, bytes, 1, 1));
}

EXPORT int cuMemcpyPeerAsync(uint64_t to, struct handle *there, uint64_t from, struct handle *here, size_t bytes, struct handle *stream) {
    CALL(CURRENT, to, there, from, here, bytes, stream);
    RETURN(is_stream(stream) ? copy_checked(to, from, bytes, 1, 1) : INVALID_HANDLE);
}

/* ---- rectangles ---- */

enum { HOST_TYPE = 1, DEVICE_TYPE, ARRAY_TYPE, UNIFIED_TYPE };

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

struct copy_3d {
    size_t from_x, from_y, from_z, from_lod;
    int from_type;
    const void *from_host;
    uint64_t from_device;
    void *from_array, *reserved_from;
    size_t from_pitch, from_height, to_x, to_y, to_z, to_lod;
    int to_type;
    void *to_host;
    uint64_t to_device;
    void *to_array, *reserved_to;
    size_t to_pitch, to_height, width, height, depth;
};

static uint64_t side(int type, const void *host, uint64_t address) { return type == HOST_TYPE ? (uint64_t)host : address; }

static int copy_box(const struct copy_3d *box) {
    if (box->from_type == ARRAY_TYPE || box->to_type == ARRAY_TYPE) return refuse("cuMemcpy3D", "CUDA arrays are not supported");
    if (box->from_type < HOST_TYPE || box->from_type > UNIFIED_TYPE || box->to_type < HOST_TYPE || box->to_type > UNIFIED_TYPE) return INVALID_VALUE;
    if (!box->width || !box->height || !box->depth) return SUCCESS;
    size_t from_pitch = box->from_pitch ? box->from_pitch : box->from_x + box->width;
    size_t to_pitch = box->to_pitch ? box->to_pitch : box->to_x + box->width;
    if (from_pitch < box->width || to_pitch < box->width) return INVALID_VALUE;
    size_t from_plane = from_pitch * (box->from_height ? box->from_height : box->from_y + box->height);
    size_t to_plane = to_pitch * (box->to_height ? box->to_height : box->to_y + box->height);
    uint64_t from = side(box->from_type, box->from_host, box->from_device) + box->from_z * from_plane + box->from_y * from_pitch + box->from_x;
    uint64_t to = side(box->to_type, box->to_host, box->to_device) + box->to_z * to_plane + box->to_y * to_pitch + box->to_x;
    for (size_t z = 0; z < box->depth; z++)
        for (size_t y = 0; y < box->height; y++) {
            int code = copy_checked(to + z * to_plane + y * to_pitch, from + z * from_plane + y * from_pitch, box->width, box->to_type == DEVICE_TYPE,
                                    box->from_type == DEVICE_TYPE);
            if (code != SUCCESS) return code;
        }
    return SUCCESS;
}

static int copy_rectangle(const struct copy_2d *given) {
    if (!given) return INVALID_VALUE;
    struct copy_3d box = {
        .from_x = given->from_x, .from_y = given->from_y, .from_type = given->from_type, .from_host = given->from_host,
        .from_device = given->from_device, .from_pitch = given->from_pitch,
        .to_x = given->to_x, .to_y = given->to_y, .to_type = given->to_type, .to_host = given->to_host,
        .to_device = given->to_device, .to_pitch = given->to_pitch,
        .width = given->width, .height = given->height, .depth = 1,
    };
    return copy_box(&box);
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
    RETURN(is_stream(stream) ? copy_rectangle(given) : INVALID_HANDLE);
}

EXPORT int cuMemcpy3D_v2(const struct copy_3d *given) {
    CALL(CURRENT, given);
    RETURN(given ? copy_box(given) : INVALID_VALUE);
}

EXPORT int cuMemcpy3DAsync_v2(const struct copy_3d *given, struct handle *stream) {
    CALL(CURRENT, given, stream);
    if (!is_stream(stream)) RETURN(INVALID_HANDLE);
    RETURN(given ? copy_box(given) : INVALID_VALUE);
}

/* ---- memset ---- */

static int fill(uint64_t to, size_t pitch, uint32_t value, size_t element, size_t width, size_t height) {
    if (fault()) return fault();
    if (!width || !height) return SUCCESS;
    if (!in_window(to) || to % element || width > SIZE_MAX / element) return INVALID_VALUE;
    size_t bytes = width * element;
    if (height > 1 && (pitch < bytes || pitch % element)) return INVALID_VALUE;
    for (size_t y = 0; y < height; y++) {
        uint8_t *row = view_of(to + y * pitch, bytes);
        if (!row) return INVALID_VALUE;
        if (element == 1)
            memset(row, (int)(value & 255u), bytes);
        else
            for (size_t at = 0; at < bytes; at += element) memcpy(row + at, &value, element);
        wrote(to + y * pitch, bytes);
    }
    return SUCCESS;
}

#define FILL(bits, type)                                                                                             \
    EXPORT int cuMemsetD##bits##_v2(uint64_t to, type value, size_t number) {                                         \
        CALL(CURRENT, to, value, number);                                                                            \
        RETURN(fill(to, 0, value, bits / 8, number, 1));                                                             \
    }                                                                                                                \
    EXPORT int cuMemsetD##bits##Async(uint64_t to, type value, size_t number, struct handle *stream) {                \
        CALL(CURRENT, to, value, number, stream);                                                                    \
        RETURN(is_stream(stream) ? fill(to, 0, value, bits / 8, number, 1) : INVALID_HANDLE);                        \
    }                                                                                                                \
    EXPORT int cuMemsetD2D##bits##_v2(uint64_t to, size_t pitch, type value, size_t width, size_t height) {           \
        CALL(CURRENT, to, pitch, value, width, height);                                                              \
        RETURN(fill(to, pitch, value, bits / 8, width, height));                                                     \
    }                                                                                                                \
    EXPORT int cuMemsetD2D##bits##Async(uint64_t to, size_t pitch, type value, size_t width, size_t height, struct handle *stream) { \
        CALL(CURRENT, to, pitch, value, width, height, stream);                                                      \
        RETURN(is_stream(stream) ? fill(to, pitch, value, bits / 8, width, height) : INVALID_HANDLE);                \
    }

FILL(8, uint8_t)
FILL(16, uint16_t)
FILL(32, uint32_t)

/* Copies, memsets and symbols. Every copy is done when it returns, so that the forms with a stream are the general ones. */
#include "graph.h"

static int copy(void *to, const void *from, size_t bytes, int direction, void *stream) {
    switch (direction) {
    case HOST_TO_DEVICE: return cuMemcpyHtoDAsync_v2((uint64_t)to, from, bytes, stream);
    case DEVICE_TO_HOST: return cuMemcpyDtoHAsync_v2(to, (uint64_t)from, bytes, stream);
    case DEVICE_TO_DEVICE: return cuMemcpyDtoDAsync_v2((uint64_t)to, (uint64_t)from, bytes, stream);
    case HOST_TO_HOST:
    case BY_ADDRESS: return cuMemcpyAsync((uint64_t)to, (uint64_t)from, bytes, stream);
    default: return INVALID_DIRECTION;
    }
}

EXPORT int cudaMemcpy(void *to, const void *from, size_t bytes, int direction) { CALL(copy(to, from, bytes, direction, NULL)); }
PER_THREAD(cudaMemcpy, _ptds);

EXPORT int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int direction, void *stream) { CALL(copy(to, from, bytes, direction, stream)); }
PER_THREAD(cudaMemcpyAsync, _ptsz);

EXPORT int cudaMemcpyPeer(void *to, int target, const void *from, int source, size_t bytes) {
    if (target || source) return done(INVALID_DEVICE);
    CALL(copy(to, from, bytes, DEVICE_TO_DEVICE, NULL));
}

EXPORT int cudaMemcpyPeerAsync(void *to, int target, const void *from, int source, size_t bytes, void *stream) {
    if (target || source) return done(INVALID_DEVICE);
    CALL(copy(to, from, bytes, DEVICE_TO_DEVICE, stream));
}

/* ---- rectangles and boxes, in the driver's layout ---- */

enum memory_type { HOST_TYPE = 1, DEVICE_TYPE, ARRAY_TYPE, UNIFIED_TYPE };

static int type_of(int direction, int is_target) {
    if (direction == BY_ADDRESS) return UNIFIED_TYPE;
    int on_device = is_target ? direction == HOST_TO_DEVICE || direction == DEVICE_TO_DEVICE : direction == DEVICE_TO_HOST || direction == DEVICE_TO_DEVICE;
    return on_device ? DEVICE_TYPE : HOST_TYPE;
}

static struct side side(const void *pointer, size_t pitch, size_t height, int type) {
    return (struct side){.type = type, .host = pointer, .device = (uint64_t)pointer, .pitch = pitch, .height = height};
}

static int copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, struct extent extent, int direction, void *stream) {
    if (direction < HOST_TO_HOST || direction > BY_ADDRESS) return INVALID_DIRECTION;
    if (!extent.width || !extent.height) return SUCCESS;
    if (extent.width > to_pitch || extent.width > from_pitch) return INVALID_PITCH;
    struct box box = {
        .from = side(from, from_pitch, extent.height, type_of(direction, 0)),
        .to = side(to, to_pitch, extent.height, type_of(direction, 1)),
        .width = extent.width, .height = extent.height, .depth = extent.depth,
    };
    return cuMemcpy3DAsync_v2(&box, stream);
}

EXPORT int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int direction, void *stream) {
    CALL(copy_rows(to, to_pitch, from, from_pitch, (struct extent){width, height, 1}, direction, stream));
}
PER_THREAD(cudaMemcpy2DAsync, _ptsz);

EXPORT int cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int direction) {
    return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, direction, NULL);
}
PER_THREAD(cudaMemcpy2D, _ptds);

int box_of(struct box *box, const struct copy_3d *given) {
    if (!given) return INVALID_VALUE;
    if (given->from_array || given->to_array) return weftRefuse("cudaMemcpy3D", "CUDA arrays are not supported");
    if (given->direction < HOST_TO_HOST || given->direction > BY_ADDRESS) return INVALID_DIRECTION;
    *box = (struct box){
        .from = side(given->from.pointer, given->from.pitch, given->from.height, type_of(given->direction, 0)),
        .to = side(given->to.pointer, given->to.pitch, given->to.height, type_of(given->direction, 1)),
        .width = given->extent.width, .height = given->extent.height, .depth = given->extent.depth,
    };
    box->from.x = given->from_x, box->from.y = given->from_y, box->from.z = given->from_z;
    box->to.x = given->to_x, box->to.y = given->to_y, box->to.z = given->to_z;
    return SUCCESS;
}

int row_of(struct box *box, void *to, const void *from, size_t bytes, int direction) {
    struct copy_3d whole = {.from = {(void *)from, bytes, bytes, 1}, .to = {to, bytes, bytes, 1}, .extent = {bytes, 1, 1}, .direction = direction};
    return box_of(box, &whole);
}

static int copy_box(const struct copy_3d *given, void *stream) {
    struct box box;
    int code = box_of(&box, given);
    return code != SUCCESS ? code : cuMemcpy3DAsync_v2(&box, stream);
}

EXPORT int cudaMemcpy3DAsync(const struct copy_3d *given, void *stream) { CALL(copy_box(given, stream)); }
PER_THREAD(cudaMemcpy3DAsync, _ptsz);

EXPORT int cudaMemcpy3D(const struct copy_3d *given) { CALL(copy_box(given, NULL)); }
PER_THREAD(cudaMemcpy3D, _ptds);

/* ---- memsets ---- */

EXPORT int cudaMemsetAsync(void *to, int value, size_t bytes, void *stream) { CALL(cuMemsetD8Async((uint64_t)to, (uint8_t)value, bytes, stream)); }
PER_THREAD(cudaMemsetAsync, _ptsz);

EXPORT int cudaMemset(void *to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes, NULL); }
PER_THREAD(cudaMemset, _ptds);

EXPORT int cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height, void *stream) {
    CALL(cuMemsetD2D8Async((uint64_t)to, pitch, (uint8_t)value, width, height, stream));
}
PER_THREAD(cudaMemset2DAsync, _ptsz);

EXPORT int cudaMemset2D(void *to, size_t pitch, int value, size_t width, size_t height) { return cudaMemset2DAsync(to, pitch, value, width, height, NULL); }
PER_THREAD(cudaMemset2D, _ptds);

static int fill_box(struct pitched to, int value, struct extent extent, void *stream) {
    int code = SUCCESS;
    for (size_t z = 0; z < extent.depth && code == SUCCESS; z++)
        code = cuMemsetD2D8Async((uint64_t)to.pointer + z * to.pitch * to.height, to.pitch, (uint8_t)value, extent.width, extent.height, stream);
    return code;
}

EXPORT int cudaMemset3DAsync(struct pitched to, int value, struct extent extent, void *stream) { CALL(fill_box(to, value, extent, stream)); }
PER_THREAD(cudaMemset3DAsync, _ptsz);

EXPORT int cudaMemset3D(struct pitched to, int value, struct extent extent) { return cudaMemset3DAsync(to, value, extent, NULL); }
PER_THREAD(cudaMemset3D, _ptds);

/* ---- symbols ---- */

int symbol_range(const void *symbol, size_t bytes, size_t offset, void **pointer) {
    uint64_t address;
    size_t size;
    int code = find_variable(symbol, &address, &size);
    if (code != SUCCESS) return code;
    if (offset > size || bytes > size - offset) return INVALID_VALUE;
    *pointer = (void *)(uintptr_t)(address + offset);
    return SUCCESS;
}

static int copy_to_symbol(const void *symbol, const void *from, size_t bytes, size_t offset, int direction, void *stream) {
    void *to;
    if (direction == HOST_TO_HOST || direction == DEVICE_TO_HOST) return INVALID_DIRECTION;
    int code = symbol_range(symbol, bytes, offset, &to);
    return code != SUCCESS ? code : copy(to, from, bytes, direction, stream);
}

static int copy_from_symbol(void *to, const void *symbol, size_t bytes, size_t offset, int direction, void *stream) {
    void *from;
    if (direction == HOST_TO_HOST || direction == HOST_TO_DEVICE) return INVALID_DIRECTION;
    int code = symbol_range(symbol, bytes, offset, &from);
    return code != SUCCESS ? code : copy(to, from, bytes, direction, stream);
}

EXPORT int cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t bytes, size_t offset, int direction, void *stream) {
    CALL(copy_to_symbol(symbol, from, bytes, offset, direction, stream));
}
PER_THREAD(cudaMemcpyToSymbolAsync, _ptsz);

EXPORT int cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, int direction) {
    CALL(copy_to_symbol(symbol, from, bytes, offset, direction, NULL));
}
PER_THREAD(cudaMemcpyToSymbol, _ptds);

EXPORT int cudaMemcpyFromSymbolAsync(void *to, const void *symbol, size_t bytes, size_t offset, int direction, void *stream) {
    CALL(copy_from_symbol(to, symbol, bytes, offset, direction, stream));
}
PER_THREAD(cudaMemcpyFromSymbolAsync, _ptsz);

EXPORT int cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset, int direction) {
    CALL(copy_from_symbol(to, symbol, bytes, offset, direction, NULL));
}
PER_THREAD(cudaMemcpyFromSymbol, _ptds);

EXPORT int cudaGetSymbolAddress(void **pointer, const void *symbol) {
    if (!pointer) return done(INVALID_VALUE);
    CALL(symbol_range(symbol, 0, 0, pointer));
}

EXPORT int cudaGetSymbolSize(size_t *bytes, const void *symbol) {
    uint64_t address;
    if (!bytes) return done(INVALID_VALUE);
    CALL(find_variable(symbol, &address, bytes));
}

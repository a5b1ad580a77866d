/* Tensor maps. Their 128 bytes are opaque: the server, which reads them when a kernel copies, makes them. */
#include <stdlib.h>
#include <string.h>

#include "shim.h"

enum { MAP_BYTES = 128, MOST_DIMENSIONS = 5, ENCODE = 0, REPLACE_ADDRESS = 1 };

/* As `driver/tensor_maps.py` reads it; dimension 0 is the innermost. */
struct description {
    uint64_t address, dimensions[MOST_DIMENSIONS], strides[MOST_DIMENSIONS - 1];
    uint32_t box[MOST_DIMENSIONS], steps[MOST_DIMENSIONS];
    int32_t type, rank, interleave, swizzle, promotion, fill;
};

/* The documentation asks for an alignment of 64 bytes; NVIDIA's own cuda.core passes maps without it. */
static int is_map(const void *map) { return map != NULL; }

static int made_by_server(void *map, int what, const void *sent, size_t bytes, uint64_t address) {
    void *made = NULL;
    struct request request = {.kind = TENSOR_MAP, .argument = {(uint64_t)what, (uint64_t)device_number(), address}, .blob_bytes = bytes};
    struct answer answer = ask(request, sent, &made);
    if (answer.code == SUCCESS && answer.blob_bytes == MAP_BYTES) memcpy(map, made, MAP_BYTES);
    free(made);
    return (int)answer.code;
}

EXPORT int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *dimensions, const uint64_t *strides,
                                  const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill) {
    CALL(CURRENT, map, type, rank, address, dimensions, strides, box, steps, interleave, swizzle, promotion, fill);
    if (!is_map(map) || !rank || rank > MOST_DIMENSIONS || !dimensions || (rank > 1 && !strides) || !box || !steps) RETURN(INVALID_VALUE);
    struct description sent = {.address = (uint64_t)(uintptr_t)address, .type = type, .rank = (int32_t)rank, .interleave = interleave,
                               .swizzle = swizzle, .promotion = promotion, .fill = fill};
    memcpy(sent.dimensions, dimensions, rank * sizeof *dimensions);
    if (rank > 1) memcpy(sent.strides, strides, (rank - 1) * sizeof *strides);
    memcpy(sent.box, box, rank * sizeof *box);
    memcpy(sent.steps, steps, rank * sizeof *steps);
    RETURN(made_by_server(map, ENCODE, &sent, sizeof sent, 0));
}

EXPORT int cuTensorMapReplaceAddress(void *map, void *address) {
    CALL(CURRENT, map, address);
    if (!is_map(map)) RETURN(INVALID_VALUE);
    RETURN(made_by_server(map, REPLACE_ADDRESS, map, MAP_BYTES, (uint64_t)(uintptr_t)address));
}

/* Advice about memory, prefetching, and copies in batches. There is one memory, so that nothing moves: advice is kept for
 * cuMemRangeGetAttribute, for an allocation as a whole. */
#include <string.h>

#include "work.h"

enum advice { SET_READ_MOSTLY = 1, UNSET_READ_MOSTLY, SET_PREFERRED, UNSET_PREFERRED, SET_ACCESSED_BY, UNSET_ACCESSED_BY };
enum range_attribute {
    READ_MOSTLY = 1,
    PREFERRED,
    ACCESSED_BY,
    LAST_PREFETCH,
    PREFERRED_TYPE,
    PREFERRED_ID,
    LAST_PREFETCH_TYPE,
    LAST_PREFETCH_ID,
};
enum location_type { NOWHERE, ON_DEVICE, ON_HOST, ON_HOST_NUMA, ON_CURRENT_NUMA };
#define CPU (-1)
#define NO_DEVICE_THERE (-2)
#define CPU_BIT 31

/* A location is a type and a number; it is passed by value. */
static struct location location_of(uint64_t passed) {
    struct location where;
    memcpy(&where, &passed, sizeof where);
    return where;
}

static struct location location_of_device(int which) {
    return which == CPU ? (struct location){ON_HOST, 0} : (struct location){ON_DEVICE, which};
}

static int is_location(struct location where) {
    return where.type == ON_DEVICE ? is_device(where.id) : where.type >= ON_HOST && where.type <= ON_CURRENT_NUMA;
}

/* Returns the allocation of a range, NULL if it is not memory of the driver. */
static struct allocation *range(uint64_t address, size_t bytes) {
    if (!bytes || !in_window(address) || !view_of(address, bytes)) return NULL;
    const struct allocation *found = find_allocation(address);
    return found ? allocation_at(found->address) : NULL;
}

static int advise(uint64_t address, size_t bytes, int advice, struct location where) {
    struct allocation *found = range(address, bytes);
    if (!found || advice < SET_READ_MOSTLY || advice > UNSET_ACCESSED_BY) return INVALID_VALUE;
    struct advised *kept = &found->advised;
    if ((advice == SET_PREFERRED || advice == SET_ACCESSED_BY || advice == UNSET_ACCESSED_BY) && !is_location(where)) return INVALID_DEVICE;
    if (bytes < found->bytes) kept->in_parts = 1;
    uint32_t bit = 1u << (where.type == ON_DEVICE ? where.id : CPU_BIT);
    switch (advice) {
    case SET_READ_MOSTLY: kept->read_mostly = 1; break;
    case UNSET_READ_MOSTLY: kept->read_mostly = 0; break;
    case SET_PREFERRED: kept->preferred = where; break;
    case UNSET_PREFERRED: kept->preferred = (struct location){NOWHERE, 0}; break;
    case SET_ACCESSED_BY: kept->accessed_by |= bit; break;
    default: kept->accessed_by &= ~bit;
    }
    return SUCCESS;
}

static int prefetch(uint64_t address, size_t bytes, struct location where, struct handle *stream) {
    if (!is_stream(stream)) return INVALID_HANDLE;
    struct allocation *found = range(address, bytes);
    if (!found) return INVALID_VALUE;
    if (!is_location(where)) return INVALID_DEVICE;
    if (bytes < found->bytes) found->advised.in_parts = 1;
    found->advised.prefetched = where;
    return SUCCESS;
}

EXPORT int cuMemAdvise(uint64_t address, size_t bytes, int advice, int which) {
    CALL(CURRENT, address, bytes, advice, which);
    RETURN(advise(address, bytes, advice, location_of_device(which)));
}

EXPORT int cuMemAdvise_v2(uint64_t address, size_t bytes, int advice, uint64_t where) {
    CALL(CURRENT, address, bytes, advice, where);
    RETURN(advise(address, bytes, advice, location_of(where)));
}

EXPORT int cuMemPrefetchAsync(uint64_t address, size_t bytes, int which, struct handle *stream) {
    CALL(CURRENT, address, bytes, which, stream);
    RETURN(prefetch(address, bytes, location_of_device(which), stream));
}

EXPORT int cuMemPrefetchAsync_v2(uint64_t address, size_t bytes, uint64_t where, unsigned flags, struct handle *stream) {
    CALL(CURRENT, address, bytes, where, flags, stream);
    RETURN(flags ? INVALID_VALUE : prefetch(address, bytes, location_of(where), stream));
}

/* ---- batches ---- */

/* The rows of a table apply from their index on; the first is 0, and they ascend. */
static int are_indices(const size_t *indices, size_t rows, size_t count) {
    for (size_t row = 0; row < rows; row++)
        if (row ? indices[row] <= indices[row - 1] || indices[row] >= count : indices[row] != 0) return 0;
    return 1;
}

static size_t row_of(const size_t *indices, size_t rows, size_t at) {
    size_t row = 0;
    while (row + 1 < rows && indices[row + 1] <= at) row++;
    return row;
}

struct batch {
    const uint64_t *addresses;
    const size_t *sizes;
    size_t count;
};

static int prefetch_batch(struct batch batch, const struct location *places, const size_t *indices, size_t rows, struct handle *stream) {
    if (!batch.addresses || !batch.sizes || !batch.count || !places || !indices || !rows || rows > batch.count) return INVALID_VALUE;
    if (!are_indices(indices, rows, batch.count)) return INVALID_VALUE;
    for (size_t at = 0; at < batch.count; at++) {
        int code = prefetch(batch.addresses[at], batch.sizes[at], places[row_of(indices, rows, at)], stream);
        if (code != SUCCESS) return code;
    }
    return SUCCESS;
}

/* The contents become arbitrary: here they stay. */
static int discard_batch(struct batch batch, struct handle *stream) {
    if (!is_stream(stream)) return INVALID_HANDLE;
    if (!batch.addresses || !batch.sizes || !batch.count) return INVALID_VALUE;
    for (size_t at = 0; at < batch.count; at++) {
        const struct allocation *found = range(batch.addresses[at], batch.sizes[at]);
        if (!found || found->type != MANAGED_MEMORY) return INVALID_VALUE;
    }
    return SUCCESS;
}

EXPORT int cuMemPrefetchBatchAsync(const uint64_t *addresses, const size_t *sizes, size_t count, const struct location *places, const size_t *indices, size_t rows, uint64_t flags, struct handle *stream) {
    CALL(CURRENT, addresses, sizes, count, places, indices, rows, flags, stream);
    RETURN(flags ? INVALID_VALUE : prefetch_batch((struct batch){addresses, sizes, count}, places, indices, rows, stream));
}

EXPORT int cuMemDiscardBatchAsync(const uint64_t *addresses, const size_t *sizes, size_t count, uint64_t flags, struct handle *stream) {
    CALL(CURRENT, addresses, sizes, count, flags, stream);
    RETURN(flags ? INVALID_VALUE : discard_batch((struct batch){addresses, sizes, count}, stream));
}

EXPORT int cuMemDiscardAndPrefetchBatchAsync(const uint64_t *addresses, const size_t *sizes, size_t count, const struct location *places, const size_t *indices, size_t rows, uint64_t flags, struct handle *stream) {
    CALL(CURRENT, addresses, sizes, count, places, indices, rows, flags, stream);
    struct batch batch = {addresses, sizes, count};
    int code = flags ? INVALID_VALUE : discard_batch(batch, stream);
    RETURN(code ? code : prefetch_batch(batch, places, indices, rows, stream));
}

struct copy_attributes {
    int order; /* in which the source is read: 1 as the stream, 2 during the call, 3 any. Every copy is done at once */
    struct location from, to;
    unsigned flags;
};

static int copy_batch(const uint64_t *to, const uint64_t *from, const size_t *sizes, size_t count, const struct copy_attributes *attributes, const size_t *indices, size_t rows, struct handle *stream) {
    if (!to || !from || !sizes || !count || !stream || (uintptr_t)stream == 1) return INVALID_VALUE; /* the legacy stream */
    if (!is_stream(stream)) return INVALID_HANDLE;
    if (!attributes || !indices || !rows || rows > count || !are_indices(indices, rows, count)) return INVALID_VALUE;
    for (size_t row = 0; row < rows; row++)
        if (attributes[row].order < 1 || attributes[row].order > 3) return INVALID_VALUE;
    int code, capturing = is_capturing(stream, &code);
    if (code || capturing) return code ? code : stream_waits_in_capture(stream);
    for (size_t at = 0; at < count; at++) {
        code = sizes[at] ? copy_bytes(to[at], from[at], sizes[at]) : INVALID_VALUE;
        if (code != SUCCESS) return code;
    }
    return SUCCESS;
}

EXPORT int cuMemcpyBatchAsync(const uint64_t *to, const uint64_t *from, const size_t *sizes, size_t count, const struct copy_attributes *attributes, const size_t *indices, size_t rows, size_t *failed, struct handle *stream) {
    CALL(CURRENT, to, from, sizes, count, attributes, indices, rows, failed, stream);
    int code = copy_batch(to, from, sizes, count, attributes, indices, rows, stream);
    if (code && failed) *failed = (size_t)-1; /* as documented: no single copy */
    RETURN(code);
}

EXPORT int cuMemcpyBatchAsync_v2(const uint64_t *to, const uint64_t *from, const size_t *sizes, size_t count, const struct copy_attributes *attributes, const size_t *indices, size_t rows, struct handle *stream) {
    CALL(CURRENT, to, from, sizes, count, attributes, indices, rows, stream);
    RETURN(copy_batch(to, from, sizes, count, attributes, indices, rows, stream));
}

/* ---- what was advised ---- */

static int number_of(struct location where) { return where.type == ON_DEVICE ? where.id : where.type == ON_HOST ? CPU : NO_DEVICE_THERE; }

static void list_accessors(uint32_t bits, int *list, size_t room) {
    size_t used = 0;
    for (int bit = 0; bit <= CPU_BIT && used < room; bit++)
        if (bits >> bit & 1) list[used++] = bit == CPU_BIT ? CPU : bit;
    while (used < room) list[used++] = NO_DEVICE_THERE;
}

EXPORT int cuMemRangeGetAttribute(int *data, size_t room, int attribute, uint64_t address, size_t bytes) {
    CALL(CURRENT, data, room, attribute, address, bytes);
    const struct allocation *found = range(address, bytes);
    if (!data || !found || found->type != MANAGED_MEMORY || attribute < READ_MOSTLY || attribute > LAST_PREFETCH_ID) RETURN(INVALID_VALUE);
    if (attribute == ACCESSED_BY ? !room || room % 4 : room != 4) RETURN(INVALID_VALUE);
    const struct advised *kept = &found->advised;
    if (kept->in_parts) RETURN(refuse("cuMemRangeGetAttribute", "advice for parts of an allocation is not kept"));
    switch (attribute) {
    case READ_MOSTLY: *data = kept->read_mostly; break;
    case PREFERRED: *data = number_of(kept->preferred); break;
    case ACCESSED_BY: list_accessors(kept->accessed_by, data, room / 4); break;
    case LAST_PREFETCH: *data = number_of(kept->prefetched); break;
    case PREFERRED_TYPE: *data = kept->preferred.type; break;
    case PREFERRED_ID: *data = kept->preferred.id; break;
    case LAST_PREFETCH_TYPE: *data = kept->prefetched.type; break;
    default: *data = kept->prefetched.id;
    }
    RETURN(SUCCESS);
}

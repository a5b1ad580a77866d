/* Memory pools of the device and of the host. There is one memory, so a pool has a type and attributes, and keeps nothing. */
#include <stdlib.h>
#include <string.h>

#include "work.h"

enum pool_attribute { RESERVED_NOW = 5, RESERVED_MOST, USED_NOW, USED_MOST, LAST_ATTRIBUTE = USED_MOST };

struct pool {
    int type; /* of its memory */
    uint64_t attributes[LAST_ATTRIBUTE + 1];
};

void count_in_pool(struct handle *handle, int64_t bytes) {
    if (!is_handle(handle, POOL)) return;
    uint64_t *kept = ((struct pool *)handle->data)->attributes;
    kept[USED_NOW] += (uint64_t)bytes;
    kept[RESERVED_NOW] = kept[USED_NOW];
    if (kept[USED_NOW] > kept[USED_MOST]) kept[USED_MOST] = kept[USED_NOW];
    if (kept[RESERVED_NOW] > kept[RESERVED_MOST]) kept[RESERVED_MOST] = kept[RESERVED_NOW];
}

static struct handle *default_pools[3], *current_pools[3]; /* by type of memory */

static struct handle *new_pool(int type) {
    struct handle *made = new_handle(POOL);
    struct pool *pool = calloc(1, sizeof *pool);
    if (!made || !pool) {
        free(pool);
        if (made) free_handle(made);
        return NULL;
    }
    pool->type = type;
    for (int option = 1; option <= 3; option++) pool->attributes[option] = 1; /* reuse is allowed in all three ways */
    made->data = pool;
    return made;
}

static struct handle *default_pool(int type) {
    if (!default_pools[type]) default_pools[type] = new_pool(type);
    return default_pools[type];
}

static struct handle *current_pool(int type) {
    return is_handle(current_pools[type], POOL) ? current_pools[type] : default_pool(type);
}

/* Returns the type of memory at a location (kind and number) with an allocation type: 1 pinned, 2 managed; -1 if there is
 * none. */
static int pool_type(int allocation, const int *location) {
    int on_device = location[0] == 1, on_host = location[0] >= 2 && location[0] <= 4;
    if (allocation == 2) return on_device || on_host || location[0] == 0 ? MANAGED_MEMORY : -1;
    if (allocation != 1) return -1;
    return on_device && location[1] == 0 ? DEVICE_MEMORY : on_host ? PINNED_MEMORY : -1;
}

EXPORT int cuDeviceGetDefaultMemPool(struct handle **pool, int which) {
    CALL(INITIALISED, pool, which);
    if (!pool) RETURN(INVALID_VALUE);
    if (which != 0) RETURN(INVALID_DEVICE);
    *pool = default_pool(DEVICE_MEMORY);
    RETURN(*pool ? SUCCESS : OUT_OF_MEMORY);
}

EXPORT int cuDeviceGetMemPool(struct handle **pool, int which) {
    CALL(INITIALISED, pool, which);
    if (!pool) RETURN(INVALID_VALUE);
    if (which != 0) RETURN(INVALID_DEVICE);
    *pool = current_pool(DEVICE_MEMORY);
    RETURN(*pool ? SUCCESS : OUT_OF_MEMORY);
}

EXPORT int cuDeviceSetMemPool(int which, struct handle *pool) {
    CALL(INITIALISED, which, pool);
    if (which != 0) RETURN(INVALID_DEVICE);
    if (!is_handle(pool, POOL) || ((struct pool *)pool->data)->type != DEVICE_MEMORY) RETURN(INVALID_VALUE);
    current_pools[DEVICE_MEMORY] = pool;
    RETURN(SUCCESS);
}

EXPORT int cuMemGetDefaultMemPool(struct handle **pool, const int *location, int allocation) {
    CALL(INITIALISED, pool, location, allocation);
    int type = pool && location ? pool_type(allocation, location) : -1;
    if (type < 0) RETURN(INVALID_VALUE);
    *pool = default_pool(type);
    RETURN(*pool ? SUCCESS : OUT_OF_MEMORY);
}

EXPORT int cuMemGetMemPool(struct handle **pool, const int *location, int allocation) {
    CALL(INITIALISED, pool, location, allocation);
    int type = pool && location ? pool_type(allocation, location) : -1;
    if (type < 0) RETURN(INVALID_VALUE);
    *pool = current_pool(type);
    RETURN(*pool ? SUCCESS : OUT_OF_MEMORY);
}

EXPORT int cuMemSetMemPool(const int *location, int allocation, struct handle *pool) {
    CALL(INITIALISED, location, allocation, pool);
    int type = location ? pool_type(allocation, location) : -1;
    if (type < 0 || !is_handle(pool, POOL) || ((struct pool *)pool->data)->type != type) RETURN(INVALID_VALUE);
    current_pools[type] = pool;
    RETURN(SUCCESS);
}

/* The properties are: allocation type, types of handles, location. */
EXPORT int cuMemPoolCreate(struct handle **pool, const int *properties) {
    CALL(INITIALISED, pool, properties);
    if (!pool || !properties) RETURN(INVALID_VALUE);
    if (properties[1]) RETURN(refuse("cuMemPoolCreate", "handles of memory for other processes are not supported"));
    int type = pool_type(properties[0], properties + 2);
    if (type < 0) RETURN(INVALID_VALUE);
    *pool = new_pool(type);
    RETURN(*pool ? SUCCESS : OUT_OF_MEMORY);
}

EXPORT int cuMemPoolDestroy(struct handle *pool) {
    CALL(INITIALISED, pool);
    if (!is_handle(pool, POOL)) RETURN(INVALID_VALUE);
    for (int type = 0; type < 3; type++)
        if (pool == default_pools[type]) RETURN(INVALID_VALUE);
    free_handle(pool);
    RETURN(SUCCESS);
}

EXPORT int cuMemPoolTrimTo(struct handle *pool, size_t keep) {
    CALL(INITIALISED, pool, keep);
    RETURN(is_handle(pool, POOL) ? SUCCESS : INVALID_VALUE);
}

static int is_wide(int attribute) { return attribute >= 4; }

EXPORT int cuMemPoolGetAttribute(struct handle *pool, int attribute, void *value) {
    CALL(INITIALISED, pool, attribute, value);
    if (!is_handle(pool, POOL) || !value || attribute < 1 || attribute > LAST_ATTRIBUTE) RETURN(INVALID_VALUE);
    uint64_t kept = ((struct pool *)pool->data)->attributes[attribute];
    int narrow = (int)kept;
    memcpy(value, is_wide(attribute) ? (void *)&kept : (void *)&narrow, is_wide(attribute) ? 8 : 4);
    RETURN(SUCCESS);
}

EXPORT int cuMemPoolSetAttribute(struct handle *pool, int attribute, const void *value) {
    CALL(INITIALISED, pool, attribute, value);
    if (!is_handle(pool, POOL) || !value || attribute < 1 || attribute > LAST_ATTRIBUTE) RETURN(INVALID_VALUE);
    uint64_t given = 0;
    memcpy(&given, value, is_wide(attribute) ? 8 : 4);
    if (attribute == RESERVED_NOW || attribute == USED_NOW) RETURN(INVALID_VALUE);
    if ((attribute == RESERVED_MOST || attribute == USED_MOST) && given) RETURN(INVALID_VALUE); /* they can be reset */
    ((struct pool *)pool->data)->attributes[attribute] = given;
    RETURN(SUCCESS);
}

EXPORT int cuMemPoolSetAccess(struct handle *pool, const void *map, size_t rows) {
    CALL(INITIALISED, pool, map, rows);
    RETURN(is_handle(pool, POOL) ? SUCCESS : INVALID_VALUE);
}

EXPORT int cuMemPoolGetAccess(int *flags, struct handle *pool, const void *location) {
    CALL(INITIALISED, flags, pool, location);
    if (!is_handle(pool, POOL) || !flags) RETURN(INVALID_VALUE);
    *flags = 3;
    RETURN(SUCCESS);
}

/* In a capture the address is known at once, and the memory is allocated when the graph runs. */
static int capture_allocation(uint64_t *address, size_t bytes, struct handle *stream) {
    struct work work = {.type = ALLOCATION, .memory = {.properties = {1, 0, 1, 0}, .bytes = bytes}};
    int code = allocate_graph_memory(&work.memory.address, bytes);
    if (code != SUCCESS) return code;
    code = capture_work(stream, &work);
    if (code == SUCCESS) *address = work.memory.address;
    drop_graph_memory(work.memory.address); /* the node holds it */
    return code;
}

static int allocate_from(struct handle *pool, uint64_t *address, size_t bytes, struct handle *stream) {
    if (!is_stream(stream)) return INVALID_HANDLE;
    if (!is_handle(pool, POOL) || !address) return INVALID_VALUE;
    int barred, capturing = is_capturing(stream, &barred);
    if (barred) return barred;
    if (capturing) return bytes ? capture_allocation(address, bytes, stream) : INVALID_VALUE;
    if (!bytes) { /* an empty buffer of a pool is no error */
        *address = 0;
        return fault();
    }
    int code = allocate_memory(address, bytes, ((struct pool *)pool->data)->type, 0);
    if (code != SUCCESS) return code;
    set_pool(*address, pool);
    count_in_pool(pool, (int64_t)bytes);
    return SUCCESS;
}

EXPORT int cuMemAllocAsync(uint64_t *address, size_t bytes, struct handle *stream) {
    CALL(CURRENT, address, bytes, stream);
    RETURN(allocate_from(current_pool(DEVICE_MEMORY), address, bytes, stream));
}

EXPORT int cuMemAllocFromPoolAsync(uint64_t *address, size_t bytes, struct handle *pool, struct handle *stream) {
    CALL(CURRENT, address, bytes, pool, stream);
    RETURN(allocate_from(pool, address, bytes, stream));
}

EXPORT int cuMemFreeAsync(uint64_t address, struct handle *stream) {
    CALL(INITIALISED, address, stream);
    if (!is_stream(stream)) RETURN(INVALID_HANDLE);
    if (!current_context() && (uintptr_t)stream <= 2) RETURN(INVALID_CONTEXT); /* another stream knows its context */
    int code, capturing = is_capturing(stream, &code);
    if (code != SUCCESS) RETURN(code);
    struct work work = {.type = DEALLOCATION, .memory = {.address = address}};
    if (capturing) RETURN(is_graph_memory(address) ? capture_work(stream, &work) : INVALID_VALUE);
    RETURN(fault() ? fault() : release_memory(address, DEVICE_MEMORY, PINNED_MEMORY));
}

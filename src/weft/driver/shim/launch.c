/* Launches and occupancy. A launch is one request; it has run when the answer is here. An error of the kernel becomes
 * the context's sticky error, which the next call shows, as on a GPU. */
#include <stdlib.h>
#include <string.h>

#include "work.h"

#define MAX_DYNAMIC_SHARED 8

int pack_arguments(const struct function *function, void **parameters, void **extra, uint8_t *block) {
    if (parameters) {
        for (uint32_t i = 0; i < function->parameters; i++) {
            if (!parameters[i]) return INVALID_VALUE;
            memcpy(block + function->layout[2 * i], parameters[i], function->layout[2 * i + 1]);
        }
        return SUCCESS;
    }
    if (!extra) return function->parameters ? INVALID_VALUE : SUCCESS;
    const void *buffer = NULL;
    size_t given = 0;
    for (; *extra; extra += 2) { /* 0 ends the list, 1: the buffer, 2: a pointer to its size */
        if ((uintptr_t)extra[0] == 1)
            buffer = extra[1];
        else if ((uintptr_t)extra[0] == 2)
            given = *(size_t *)extra[1];
        else
            return INVALID_VALUE;
    }
    if (!buffer || given < function->parameter_bytes) return INVALID_VALUE;
    memcpy(block, buffer, function->parameter_bytes);
    return SUCCESS;
}

int check_kernel(struct handle *handle, const struct shape *shape) {
    if (!is_handle(handle, FUNCTION)) return INVALID_HANDLE;
    const struct function *function = handle->data;
    uint64_t threads = 1;
    for (int axis = 0; axis < 3; axis++) {
        if (!shape->grid[axis] || !shape->block[axis] || shape->block[axis] > 1024) return INVALID_VALUE;
        threads *= shape->block[axis];
    }
    if (threads > (uint64_t)function->attributes[0]) return INVALID_VALUE;
    return (int64_t)shape->shared > function->attributes[MAX_DYNAMIC_SHARED] ? INVALID_VALUE : SUCCESS;
}

int run_kernel(const struct kernel_work *kernel) {
    int code = check_kernel(kernel->function, &kernel->shape);
    if (code == SUCCESS && kernel->function->id != kernel->id) code = INVALID_HANDLE; /* the module of a node was unloaded */
    if (code != SUCCESS) return code;
    const struct shape *shape = &kernel->shape;
    struct request request = {
        .kind = LAUNCH,
        .argument = {kernel->function->id, shape->grid[0], shape->grid[1], shape->grid[2], shape->block[0] | (uint64_t)shape->block[1] << 32,
                     shape->block[2] | (uint64_t)kernel->cluster << 32, shape->shared, (uint64_t)kernel->cooperative | (uint64_t)kernel->device << 32},
        .blob_bytes = kernel->bytes,
    };
    before_launch();
    void *conditions = NULL; /* that the kernel set */
    struct answer answer = ask(request, kernel->arguments, &conditions);
    after_launch();
    if (answer.value[0]) set_fault((int)answer.value[0]);
    if (answer.code == SUCCESS) {
        model_ns = answer.value[1];
        answer.code = set_conditions(conditions, answer.blob_bytes / 16);
    }
    free(conditions);
    return (int)answer.code;
}

struct manner {
    int cooperative, programmatic;
    unsigned cluster;
};

static int launch(struct handle *handle, const struct shape *shape, struct handle *stream, void **parameters, void **extra, struct manner manner) {
    if (fault()) return fault();
    int code = check_kernel(handle, shape);
    if (code == SUCCESS && !runs_on(handle, device_number())) code = INVALID_HANDLE;
    if (code != SUCCESS) return code;
    const struct function *function = handle->data;
    uint8_t small[1024], *block = small;
    if (function->parameter_bytes > sizeof small && !(block = malloc(function->parameter_bytes))) return OUT_OF_MEMORY;
    memset(block, 0, function->parameter_bytes < sizeof small ? sizeof small : function->parameter_bytes);
    code = pack_arguments(function, parameters, extra, block);
    if (code == SUCCESS) {
        struct work work = {.type = KERNEL, .kernel = {handle, handle->id, function->parameter_bytes, *shape, manner.cooperative, 0, manner.programmatic, manner.cluster, device_number(), block, NULL}};
        code = submit(stream, &work);
    }
    if (block != small) free(block);
    return code;
}

EXPORT int cuLaunchKernel(struct handle *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                          struct handle *stream, void **parameters, void **extra) {
    CALL(CURRENT, function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
    struct shape shape = {{gx, gy, gz}, {bx, by, bz}, shared};
    RETURN(launch(function, &shape, stream, parameters, extra, (struct manner){0}));
}

EXPORT int cuLaunchCooperativeKernel(struct handle *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                     unsigned shared, struct handle *stream, void **parameters) {
    CALL(CURRENT, function, gx, gy, gz, bx, by, bz, shared, stream, parameters);
    struct shape shape = {{gx, gy, gz}, {bx, by, bz}, shared};
    RETURN(launch(function, &shape, stream, parameters, NULL, (struct manner){.cooperative = 1}));
}

/* ---- launches with attributes ---- */

struct attribute {
    int id;
    char padding[4];
    union {
        unsigned numbers[16];
        void *pointer;
    } value;
};

struct configuration {
    struct shape shape;
    struct handle *stream;
    const struct attribute *attributes;
    unsigned count;
};

enum { COOPERATIVE = 2, CLUSTER = 4, PROGRAMMATIC_SERIALISATION = 6, PROGRAMMATIC_EVENT, COMPLETION_EVENT = 12, DEVICE_UPDATABLE = 13, LAST_KNOWN = 14 };

static const char *refused(const struct attribute *attribute) {
    switch (attribute->id) {
    case PROGRAMMATIC_EVENT: return "the launch attribute CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT";
    case COMPLETION_EVENT: return "the launch attribute CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT";
    case DEVICE_UPDATABLE: return "the launch attribute CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE";
    default: return attribute->id > LAST_KNOWN ? "a launch attribute that is newer than this driver" : NULL;
    }
}

EXPORT int cuLaunchKernelEx(const struct configuration *given, struct handle *function, void **parameters, void **extra) {
    CALL(CURRENT, given, function, parameters, extra);
    if (!given || (given->count && !given->attributes)) RETURN(INVALID_VALUE);
    struct manner manner = {0};
    for (unsigned i = 0; i < given->count; i++) { /* the others change no result: policies, priority, serialisation */
        const struct attribute *attribute = &given->attributes[i];
        const char *why = refused(attribute);
        if (why) RETURN(refuse("cuLaunchKernelEx", why));
        const unsigned *n = attribute->value.numbers;
        if (attribute->id == COOPERATIVE) manner.cooperative = n[0] != 0;
        if (attribute->id == PROGRAMMATIC_SERIALISATION) manner.programmatic = n[0] != 0;
        if (attribute->id == CLUSTER) { /* a preferred cluster changes only how CTAs are placed */
            if (n[0] > 16 || n[1] > 16 || n[2] > 16) RETURN(INVALID_CLUSTER_SIZE);
            manner.cluster = n[0] | n[1] << 8 | n[2] << 16;
        }
    }
    RETURN(launch(function, &given->shape, given->stream, parameters, extra, manner));
}

/* ---- occupancy: the server's model of the chip ---- */

static int active_blocks(int *blocks, struct handle *function, int threads, size_t shared) {
    if (!blocks || threads < 1) return INVALID_VALUE;
    if (!is_handle(function, FUNCTION)) return INVALID_HANDLE;
    struct answer answer = ask((struct request){.kind = OCCUPANCY, .argument = {function->id, (uint64_t)threads, shared, 0, (uint64_t)device_number()}}, NULL, NULL);
    *blocks = (int)answer.value[0];
    return (int)answer.code;
}

EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, struct handle *function, int threads, size_t shared) {
    CALL(CURRENT, blocks, function, threads, shared);
    RETURN(active_blocks(blocks, function, threads, shared));
}

EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, struct handle *function, int threads, size_t shared, unsigned flags) {
    CALL(CURRENT, blocks, function, threads, shared, flags);
    RETURN(flags > 1 ? INVALID_VALUE : active_blocks(blocks, function, threads, shared));
}

static int best_block(int *grid, int *block, struct handle *function, size_t (*shared_of)(int), size_t shared, int limit) {
    if (!grid || !block) return INVALID_VALUE;
    if (!is_handle(function, FUNCTION)) return INVALID_HANDLE;
    int most = ((struct function *)function->data)->attributes[0];
    if (limit > 0 && limit < most) most = limit;
    int best = 0;
    for (int threads = most; threads > 0; threads = threads % 32 ? threads - threads % 32 : threads - 32) {
        int blocks;
        int code = active_blocks(&blocks, function, threads, shared_of ? shared_of(threads) : shared);
        if (code != SUCCESS) return code;
        if (blocks * threads > best) {
            best = blocks * threads;
            *block = threads;
            *grid = blocks * devices[device_number()].attributes[16]; /* multiprocessors */
        }
    }
    return best ? SUCCESS : INVALID_VALUE;
}

EXPORT int cuOccupancyMaxPotentialBlockSize(int *grid, int *block, struct handle *function, size_t (*shared_of)(int), size_t shared, int limit) {
    CALL(CURRENT, grid, block, function, shared_of, shared, limit);
    RETURN(best_block(grid, block, function, shared_of, shared, limit));
}

EXPORT int cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, struct handle *function, size_t (*shared_of)(int), size_t shared, int limit,
                                                     unsigned flags) {
    CALL(CURRENT, grid, block, function, shared_of, shared, limit, flags);
    RETURN(flags > 1 ? INVALID_VALUE : best_block(grid, block, function, shared_of, shared, limit));
}

EXPORT int cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, struct handle *function, int blocks, int threads) {
    CALL(CURRENT, bytes, function, blocks, threads);
    if (!bytes || blocks < 1 || threads < 1) RETURN(INVALID_VALUE);
    if (!is_handle(function, FUNCTION)) RETURN(INVALID_HANDLE);
    struct answer answer = ask((struct request){.kind = OCCUPANCY, .argument = {function->id, (uint64_t)threads, 0, (uint64_t)blocks, (uint64_t)device_number()}}, NULL, NULL);
    size_t allowed = (size_t)((struct function *)function->data)->attributes[MAX_DYNAMIC_SHARED];
    *bytes = answer.value[1] < allowed ? answer.value[1] : allowed;
    RETURN((int)answer.code);
}

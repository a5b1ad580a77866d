/* Initialisation and contexts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

#define DRIVER_VERSION 13000
#define API_VERSION 3020
#define DEEPEST 128
#define RUNTIME_TABLE "\x6b\xd5\xfb\x6c"

static __thread struct handle *stack[DEEPEST];
static __thread int depth;
static struct handle *primary[MOST_DEVICES];
static uint64_t contexts_made;

/* ---- contexts of this thread ---- */

struct handle *current_context(void) {
    struct handle *top = depth ? stack[depth - 1] : NULL;
    return is_handle(top, CONTEXT) ? top : NULL;
}

static struct context *context_of(struct handle *handle) { return handle->data; }

int device_of_context(struct handle *context) { return is_handle(context, CONTEXT) ? context_of(context)->device : 0; }
int device_number(void) { return device_of_context(current_context()); }

int fault(void) {
    struct handle *current = current_context();
    return current ? context_of(current)->fault : SUCCESS;
}

int fault_in(const struct handle *context) { return is_handle(context, CONTEXT) ? ((const struct context *)context->data)->fault : SUCCESS; }

void set_fault(int code) {
    struct handle *current = current_context();
    if (current && !context_of(current)->fault) context_of(current)->fault = code;
}

enum { HEAP_LIMIT = 2, HEAP_BYTES = 8 << 20 }; /* CU_LIMIT_MALLOC_HEAP_SIZE, and its value at first */

/* The heap belongs to the device: its contexts share it, as they share memory. 0: all blocks are gone, and the size is
 * the first again. */
static int set_heap(int which, uint64_t bytes) {
    return ask((struct request){.kind = SET_HEAP, .argument = {which, bytes}}, NULL, NULL).code;
}

static struct handle *new_context(unsigned flags, int which) {
    struct handle *made = new_handle(CONTEXT);
    struct context *context = calloc(1, sizeof *context);
    if (!made || !context) {
        free(context);
        if (made) free_handle(made);
        return NULL;
    }
    *context = (struct context){.flags = flags, .device = which, .id = ++contexts_made};
    context->limits[0] = 1024;    /* stack of a thread */
    context->limits[1] = 1 << 20; /* printf's buffer */
    context->limits[HEAP_LIMIT] = HEAP_BYTES; /* of malloc inside kernels */
    context->limits[3] = 2;       /* depth of synchronisation of device launches */
    context->limits[4] = 2048;    /* device launches that wait */
    context->limits[5] = 128;     /* L2 fetch granularity */
    made->data = context;
    return made;
}

EXPORT int cuInit(unsigned flags) {
    CALL(NOTHING, flags);
    RETURN(flags ? INVALID_VALUE : connect_server());
}

EXPORT int cuDriverGetVersion(int *version) {
    CALL(NOTHING, version);
    if (!version) RETURN(INVALID_VALUE);
    *version = DRIVER_VERSION;
    RETURN(SUCCESS);
}

/* ---- the primary context ---- */

static void reset_primary(int which) {
    free_all_memory(which);
    unload_all_modules(which);
    set_heap(which, 0);
    context_of(primary[which])->limits[HEAP_LIMIT] = HEAP_BYTES;
    context_of(primary[which])->fault = SUCCESS;
}

EXPORT int cuDevicePrimaryCtxRetain(struct handle **context, int which) {
    CALL(INITIALISED, context, which);
    if (!context) RETURN(INVALID_VALUE);
    if (!is_device(which)) RETURN(INVALID_DEVICE);
    if (!primary[which]) primary[which] = new_context(0, which);
    if (!primary[which]) RETURN(OUT_OF_MEMORY);
    context_of(primary[which])->retained++;
    *context = primary[which];
    RETURN(SUCCESS);
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int which) {
    CALL(INITIALISED, which);
    if (!is_device(which)) RETURN(INVALID_DEVICE);
    if (!primary[which] || !context_of(primary[which])->retained) RETURN(INVALID_CONTEXT);
    if (--context_of(primary[which])->retained == 0) reset_primary(which);
    RETURN(SUCCESS);
}

EXPORT int cuDevicePrimaryCtxReset_v2(int which) {
    CALL(INITIALISED, which);
    if (!is_device(which)) RETURN(INVALID_DEVICE);
    if (primary[which]) reset_primary(which);
    RETURN(SUCCESS);
}

EXPORT int cuDevicePrimaryCtxGetState(int which, unsigned *flags, int *active) {
    CALL(INITIALISED, which, flags, active);
    if (!flags || !active) RETURN(INVALID_VALUE);
    if (!is_device(which)) RETURN(INVALID_DEVICE);
    *flags = primary[which] ? context_of(primary[which])->flags : 0;
    *active = primary[which] && context_of(primary[which])->retained;
    RETURN(SUCCESS);
}

EXPORT int cuDevicePrimaryCtxSetFlags_v2(int which, unsigned flags) {
    CALL(INITIALISED, which, flags);
    if (!is_device(which)) RETURN(INVALID_DEVICE);
    if (!primary[which]) primary[which] = new_context(flags, which);
    if (!primary[which]) RETURN(OUT_OF_MEMORY);
    context_of(primary[which])->flags = flags;
    RETURN(SUCCESS);
}

/* ---- contexts ---- */

static int create_context(struct handle **context, unsigned flags, int which) {
    if (!context) return INVALID_VALUE;
    if (!is_device(which)) return INVALID_DEVICE;
    if (depth == DEEPEST) return OUT_OF_MEMORY;
    struct handle *made = new_context(flags, which);
    if (!made) return OUT_OF_MEMORY;
    stack[depth++] = *context = made;
    return SUCCESS;
}

EXPORT int cuCtxCreate_v2(struct handle **context, unsigned flags, int which) {
    CALL(INITIALISED, context, flags, which);
    RETURN(create_context(context, flags, which));
}

EXPORT int cuCtxCreate_v3(struct handle **context, void *affinity, int count, unsigned flags, int which) {
    CALL(INITIALISED, context, affinity, count, flags, which);
    if (count) RETURN(refuse("cuCtxCreate", "execution affinity needs MPS, which the virtual GPU does not have"));
    RETURN(create_context(context, flags, which));
}

/* CUctxCreateParams of the public manual. */
struct context_parameters {
    void *affinity;
    int affinities;
    void *graphics;
};

EXPORT int cuCtxCreate_v4(struct handle **context, const struct context_parameters *parameters, unsigned flags, int which) {
    CALL(INITIALISED, context, parameters, flags, which);
    if (parameters && (parameters->affinities || parameters->graphics)) RETURN(refuse("cuCtxCreate", "parameters of a context: execution affinity and CIG are not supported"));
    RETURN(create_context(context, flags, which));
}

/* The contexts of a device other than one. A primary context that is not retained does not count. */
struct left {
    int device;
    struct handle *without;
    int contexts;
};

static void count_left(struct handle *context, void *with) {
    struct left *left = with;
    int idle = context == primary[left->device] && !context_of(context)->retained;
    left->contexts += context != left->without && !idle && context_of(context)->device == left->device;
}

static int destroy_context(struct handle *context) {
    if (!is_handle(context, CONTEXT) || context == primary[device_of_context(context)]) return INVALID_CONTEXT;
    struct left left = {device_of_context(context), context, 0};
    if (current_context() == context) depth--;
    each_handle(CONTEXT, count_left, &left);
    if (!left.contexts) set_heap(left.device, 0);
    free_handle(context);
    return SUCCESS;
}

EXPORT int cuCtxDestroy_v2(struct handle *context) {
    CALL(INITIALISED, context);
    RETURN(destroy_context(context));
}

/* A context is used once by its maker, and once more for each cuCtxAttach. */
EXPORT int cuCtxAttach(struct handle **context, unsigned flags) {
    CALL(CURRENT, context, flags);
    if (!context || flags) RETURN(INVALID_VALUE);
    *context = current_context();
    context_of(*context)->attached++;
    RETURN(SUCCESS);
}

EXPORT int cuCtxDetach(struct handle *context) {
    CALL(INITIALISED, context);
    if (!is_handle(context, CONTEXT)) RETURN(INVALID_CONTEXT);
    if (context_of(context)->attached) {
        context_of(context)->attached--;
        RETURN(SUCCESS);
    }
    RETURN(destroy_context(context));
}

EXPORT int cuCtxPushCurrent_v2(struct handle *context) {
    CALL(INITIALISED, context);
    if (!is_handle(context, CONTEXT)) RETURN(INVALID_CONTEXT);
    if (depth == DEEPEST) RETURN(OUT_OF_MEMORY);
    stack[depth++] = context;
    RETURN(SUCCESS);
}

EXPORT int cuCtxPopCurrent_v2(struct handle **context) {
    CALL(INITIALISED, context);
    if (!depth) RETURN(INVALID_CONTEXT);
    depth--;
    if (context) *context = stack[depth];
    RETURN(SUCCESS);
}

EXPORT int cuCtxSetCurrent(struct handle *context) {
    CALL(INITIALISED, context);
    if (context && !is_handle(context, CONTEXT)) RETURN(INVALID_CONTEXT);
    if (depth) depth--;
    if (context) stack[depth++] = context;
    RETURN(SUCCESS);
}

EXPORT int cuCtxGetCurrent(struct handle **context) {
    CALL(INITIALISED, context);
    if (!context) RETURN(INVALID_VALUE);
    *context = current_context();
    RETURN(SUCCESS);
}

EXPORT int cuCtxGetDevice(int *which) {
    CALL(CURRENT, which);
    if (!which) RETURN(INVALID_VALUE);
    *which = device_number();
    RETURN(SUCCESS);
}

EXPORT int cuCtxGetDevice_v2(int *which, struct handle *context) {
    CALL(INITIALISED, which, context);
    if (!which) RETURN(INVALID_VALUE);
    if (context && !is_handle(context, CONTEXT)) RETURN(INVALID_CONTEXT);
    *which = context ? device_of_context(context) : device_number();
    RETURN(SUCCESS);
}

EXPORT int cuCtxGetFlags(unsigned *flags) {
    CALL(CURRENT, flags);
    if (!flags) RETURN(INVALID_VALUE);
    *flags = context_of(current_context())->flags;
    RETURN(SUCCESS);
}

EXPORT int cuCtxSetFlags(unsigned flags) {
    CALL(CURRENT, flags);
    context_of(current_context())->flags = flags;
    RETURN(SUCCESS);
}

EXPORT int cuCtxGetId(struct handle *context, uint64_t *id) {
    CALL(INITIALISED, context, id);
    struct handle *asked = context ? context : current_context();
    if (!is_handle(asked, CONTEXT)) RETURN(INVALID_CONTEXT);
    if (!id) RETURN(INVALID_VALUE);
    *id = context_of(asked)->id;
    RETURN(SUCCESS);
}

EXPORT int cuCtxGetApiVersion(struct handle *context, unsigned *version) {
    CALL(INITIALISED, context, version);
    struct handle *asked = context ? context : current_context();
    if (!is_handle(asked, CONTEXT)) RETURN(INVALID_CONTEXT);
    if (!version) RETURN(INVALID_VALUE);
    *version = API_VERSION;
    RETURN(SUCCESS);
}

/* Every call is done when it returns: waiting only shows the error that a kernel left. */
EXPORT int cuCtxSynchronize(void) {
    CALL0(CURRENT);
    int barred = context_waits_in_capture();
    RETURN(barred ? barred : fault());
}

EXPORT int cuCtxSynchronize_v2(struct handle *context) {
    CALL(INITIALISED, context);
    struct handle *asked = context ? context : current_context();
    if (!is_handle(asked, CONTEXT)) RETURN(INVALID_CONTEXT);
    RETURN(context_of(asked)->fault);
}

EXPORT int cuCtxGetLimit(size_t *value, int limit) {
    CALL(CURRENT, value, limit);
    if (!value || limit < 0 || limit > 7) RETURN(INVALID_VALUE);
    *value = context_of(current_context())->limits[limit];
    RETURN(SUCCESS);
}

EXPORT int cuCtxSetLimit(int limit, size_t value) {
    CALL(CURRENT, limit, value);
    if (limit < 0 || limit > 7) RETURN(INVALID_VALUE);
    int code = limit == HEAP_LIMIT ? set_heap(device_number(), value ? value : 1) : SUCCESS;
    if (code == SUCCESS) context_of(current_context())->limits[limit] = value;
    RETURN(code);
}

EXPORT int cuCtxGetCacheConfig(int *config) {
    CALL(CURRENT, config);
    if (!config) RETURN(INVALID_VALUE);
    *config = 0;
    RETURN(SUCCESS);
}

EXPORT int cuCtxSetCacheConfig(int config) {
    CALL(CURRENT, config);
    RETURN(config < 0 || config > 3 ? INVALID_VALUE : SUCCESS);
}

EXPORT int cuCtxGetSharedMemConfig(int *config) {
    CALL(CURRENT, config);
    if (!config) RETURN(INVALID_VALUE);
    *config = 1; /* banks of four bytes */
    RETURN(SUCCESS);
}

EXPORT int cuCtxSetSharedMemConfig(int config) {
    CALL(CURRENT, config);
    RETURN(config < 0 || config > 2 ? INVALID_VALUE : SUCCESS);
}

EXPORT int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    CALL(CURRENT, least, greatest);
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    RETURN(SUCCESS);
}

EXPORT int cuCtxResetPersistingL2Cache(void) {
    CALL0(CURRENT);
    RETURN(SUCCESS);
}

EXPORT int cuProfilerStart(void) {
    CALL0(CURRENT);
    RETURN(SUCCESS);
}

EXPORT int cuProfilerStop(void) {
    CALL0(CURRENT);
    RETURN(SUCCESS);
}

/* Writes the path of the file that contains an address of this process. */
static void file_at(const void *address, char *path, size_t room) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4200];
    snprintf(path, room, "the program");
    while (maps && fgets(line, sizeof line, maps)) {
        char *end, *name = strchr(line, '/');
        uintptr_t first = strtoul(line, &end, 16), last = strtoul(end + 1, NULL, 16);
        if (!name || (uintptr_t)address < first || (uintptr_t)address >= last) continue;
        name[strcspn(name, "\n")] = 0;
        snprintf(path, room, "%s", name);
    }
    if (maps) fclose(maps);
}

/* No private table is handed out. NVRTC asks for one and goes on without; NVIDIA's runtime cannot, and its calls would
 * fail one by one: the program learns at the first what to do. */
EXPORT int cuGetExportTable(const void **table, const void *uuid) {
    CALL(NOTHING, table, uuid);
    if (!table || !uuid) RETURN(INVALID_VALUE);
    *table = NULL;
    if (memcmp(uuid, RUNTIME_TABLE, 4) == 0) {
        char path[300], name[340];
        file_at(__builtin_return_address(0), path, sizeof path);
        snprintf(name, sizeof name, "the CUDA runtime in %s", path);
        refuse(name, "it needs private tables of NVIDIA's driver, and cannot be replaced in a file without a symbol table: "
                     "compile with --cudart shared, or do not strip the file");
    }
    RETURN(NOT_FOUND);
}

EXPORT int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    CALL(NOTHING, name, function, version, flags, status);
    if (!name || !function || flags > 2) RETURN(INVALID_VALUE);
    int found;
    call.text = name;
    *function = find_entry(name, version, &found);
    if (status) *status = found;
    RETURN(*function || status ? SUCCESS : NOT_FOUND);
}

EXPORT int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

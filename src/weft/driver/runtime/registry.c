/* What nvcc's generated code registers before main(): images, and the host addresses of kernels and variables in them.
 * An image is loaded when something in it is first used. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

#define BUCKETS 4096u
#define LINKED_VERSION 2
#define FATBIN_INPUT 3
#define ERROR_LOG 5
#define ERROR_LOG_SIZE 6
#define DEEPEST 32

struct wrapper {
    uint32_t magic, version;
    const void *data;
    const void **linked; /* with separate compilation: the images that are linked when they are loaded, ended by NULL */
};

struct binary {
    const struct wrapper *wrapper;
    void *module;
    struct binary *next;
};

struct entry {
    const void *host;
    struct binary *binary;
    const char *name;
    void **slot; /* of a managed variable: where the program keeps its address */
    void *function;
    uint64_t address;
    size_t bytes;
    int is_kernel;
    struct entry *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct binary *binaries;
static struct entry *buckets[BUCKETS];

static struct entry **bucket(const void *host) {
    uint64_t mixed = (uint64_t)(uintptr_t)host * 0x9E3779B97F4A7C15u;
    return &buckets[mixed >> 52];
}

static struct entry *find(const void *host, int is_kernel) {
    for (struct entry *entry = *bucket(host); entry; entry = entry->next)
        if (entry->host == host && entry->is_kernel == is_kernel) return entry;
    return NULL;
}

static void add(struct entry made) {
    struct entry *entry = malloc(sizeof *entry);
    if (!entry) abort(); /* before main(): nothing could report it */
    pthread_mutex_lock(&lock);
    struct entry **at = bucket(made.host);
    *entry = made;
    entry->next = *at;
    *at = entry;
    pthread_mutex_unlock(&lock);
}

/* ---- loading ---- */

static size_t fatbin_bytes(const uint8_t *data) {
    uint16_t head;
    uint64_t payload;
    memcpy(&head, data + 6, sizeof head);
    memcpy(&payload, data + 8, sizeof payload);
    return head + payload;
}

/* nvcc has linked these images before: if they cannot be linked again, the gap is ours. */
static int load_linked(struct binary *binary) {
    void *state, *image;
    size_t bytes;
    char log[400] = "";
    int options[] = {ERROR_LOG, ERROR_LOG_SIZE};
    void *values[] = {log, (void *)(sizeof log - 1)};
    int code = cuLinkCreate_v2(2, options, values, &state);
    if (code != SUCCESS) return code;
    for (const void **part = binary->wrapper->linked; *part && code == SUCCESS; part++)
        code = cuLinkAddData_v2(state, FATBIN_INPUT, (void *)*part, fatbin_bytes(*part), "", 0, NULL, NULL);
    if (code == SUCCESS) code = cuLinkComplete(state, &image, &bytes);
    if (code == SUCCESS) code = cuModuleLoadData(&binary->module, image);
    cuLinkDestroy(state);
    return code == INVALID_PTX || code == INVALID_IMAGE ? weftRefuse("a program of several files", *log ? log : "its images cannot be linked") : code;
}

static int load(struct binary *binary) {
    if (binary->module) return SUCCESS;
    const struct wrapper *wrapper = binary->wrapper;
    if (wrapper->version == LINKED_VERSION && wrapper->linked && *wrapper->linked) return load_linked(binary);
    return cuModuleLoadData(&binary->module, wrapper);
}

static int locate(struct entry *entry) {
    if (entry->address) return SUCCESS;
    int code = load(entry->binary);
    if (code != SUCCESS) return code;
    code = cuModuleGetGlobal_v2(&entry->address, &entry->bytes, entry->binary->module, entry->name);
    return code == NOT_FOUND ? INVALID_SYMBOL : code;
}

int find_kernel(const void *host, void **function) {
    pthread_mutex_lock(&lock);
    struct entry *entry = find(host, 1);
    int code = SUCCESS;
    if (!entry) {
        const char *name;
        *function = (void *)host; /* a cudaKernel_t or cudaFunction_t is the driver's handle */
        code = host && cuFuncGetName(&name, *function) == SUCCESS ? SUCCESS : INVALID_FUNCTION;
    } else if (!entry->function) {
        code = load(entry->binary);
        if (code == SUCCESS) code = cuModuleGetFunction(&entry->function, entry->binary->module, entry->name);
        if (code == NOT_FOUND) code = INVALID_FUNCTION;
    }
    if (entry) *function = entry->function;
    pthread_mutex_unlock(&lock);
    return code;
}

int find_variable(const void *host, uint64_t *address, size_t *bytes) {
    pthread_mutex_lock(&lock);
    struct entry *entry = find(host, 0);
    /* The compiler passes the managed variable itself, so that its address is what its slot contains. */
    for (unsigned i = 0; !entry && i < BUCKETS; i++)
        for (struct entry *other = buckets[i]; other && !entry; other = other->next)
            if (other->slot && host && *other->slot == host) entry = other;
    int code = entry ? locate(entry) : INVALID_SYMBOL;
    if (code == SUCCESS) {
        *address = entry->address;
        *bytes = entry->bytes;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

static void forget(const struct binary *binary) { /* all if it is NULL */
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct entry *entry = buckets[i]; entry; entry = entry->next) {
            if (binary && entry->binary != binary) continue;
            entry->function = NULL;
            entry->address = 0;
        }
}

void unload_everything(void) {
    pthread_mutex_lock(&lock);
    forget(NULL);
    for (struct binary *binary = binaries; binary; binary = binary->next) binary->module = NULL;
    pthread_mutex_unlock(&lock);
}

/* ---- called by the generated code ---- */

EXPORT void **__cudaRegisterFatBinary(void *wrapper) {
    struct binary *binary = calloc(1, sizeof *binary);
    if (!binary) abort();
    binary->wrapper = wrapper;
    pthread_mutex_lock(&lock);
    binary->next = binaries;
    binaries = binary;
    pthread_mutex_unlock(&lock);
    return (void **)binary;
}

EXPORT void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }

EXPORT void __cudaUnregisterFatBinary(void **handle) {
    struct binary *gone = (struct binary *)handle;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct entry **at = &buckets[i]; *at;) {
            struct entry *entry = *at;
            if (entry->binary != gone) {
                at = &entry->next;
                continue;
            }
            *at = entry->next;
            free(entry);
        }
    for (struct binary **at = &binaries; *at; at = &(*at)->next)
        if (*at == gone) {
            *at = gone->next;
            if (gone->module) cuModuleUnload(gone->module);
            free(gone);
            break;
        }
    pthread_mutex_unlock(&lock);
}

EXPORT void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int threads, void *tid, void *bid, void *block,
                                   void *grid, int *warp) {
    add((struct entry){.host = host, .binary = (struct binary *)handle, .name = name, .is_kernel = 1});
}

EXPORT void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t bytes, int constant, int global) {
    add((struct entry){.host = host, .binary = (struct binary *)handle, .name = name, .bytes = bytes});
}

EXPORT void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int external, size_t bytes, int constant, int global) {
    add((struct entry){.host = host, .binary = (struct binary *)handle, .name = name, .bytes = bytes, .slot = host});
}

/* The program calls this before it first touches a managed variable, and asks again until the answer is 1. */
EXPORT char __cudaInitModule(void **handle) {
    struct binary *binary = (struct binary *)handle;
    int code = done(ready());
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < BUCKETS && code == SUCCESS; i++)
        for (struct entry *entry = buckets[i]; entry && code == SUCCESS; entry = entry->next) {
            if (entry->binary != binary || !entry->slot) continue;
            code = done(locate(entry));
            if (code == SUCCESS) *entry->slot = (void *)(uintptr_t)entry->address;
        }
    pthread_mutex_unlock(&lock);
    return code == SUCCESS;
}

/* ---- <<<grid, block, shared, stream>>> ---- */

struct configuration {
    struct dim3 grid, block;
    size_t shared;
    void *stream;
};

static __thread struct configuration stack[DEEPEST];
static __thread int depth;

EXPORT unsigned __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t shared, void *stream) {
    if (depth == DEEPEST) return (unsigned)done(MISSING_CONFIGURATION);
    stack[depth++] = (struct configuration){grid, block, shared, stream};
    return SUCCESS;
}

EXPORT int __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block, size_t *shared, void *stream) {
    if (!depth) return done(MISSING_CONFIGURATION);
    const struct configuration *top = &stack[--depth];
    *grid = top->grid;
    *block = top->block;
    *shared = top->shared;
    memcpy(stream, &top->stream, sizeof top->stream);
    return SUCCESS;
}

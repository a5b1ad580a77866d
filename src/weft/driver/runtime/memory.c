/* Device, pinned, managed and pool memory; pointers. */
#include "runtime.h"

#define SMALLEST_PITCH_ELEMENT 4

static int allocate(void **pointer, size_t bytes) {
    if (!pointer) return INVALID_VALUE;
    *pointer = NULL;
    return bytes ? cuMemAlloc_v2((uint64_t *)pointer, bytes) : SUCCESS;
}

EXPORT int cudaMalloc(void **pointer, size_t bytes) { CALL(allocate(pointer, bytes)); }

EXPORT int cudaFree(void *pointer) { CALL(cuMemFree_v2((uint64_t)pointer)); }

static int allocate_rows(void **pointer, size_t *pitch, size_t width, size_t height) {
    if (!pointer || !pitch) return INVALID_VALUE;
    *pointer = NULL;
    *pitch = 0;
    return width && height ? cuMemAllocPitch_v2((uint64_t *)pointer, pitch, width, height, SMALLEST_PITCH_ELEMENT) : SUCCESS;
}

EXPORT int cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height) { CALL(allocate_rows(pointer, pitch, width, height)); }

EXPORT int cudaMalloc3D(struct pitched *made, struct extent extent) {
    if (!made) return done(INVALID_VALUE);
    made->width = extent.width;
    made->height = extent.height;
    CALL(allocate_rows(&made->pointer, &made->pitch, extent.width, extent.height * extent.depth));
}

EXPORT int cudaMallocManaged(void **pointer, size_t bytes, unsigned flags) { CALL(cuMemAllocManaged((uint64_t *)pointer, bytes, flags)); }

static int allocate_host(void **pointer, size_t bytes, unsigned flags) {
    if (!pointer) return INVALID_VALUE;
    *pointer = NULL;
    return bytes ? cuMemHostAlloc(pointer, bytes, flags) : SUCCESS;
}

EXPORT int cudaHostAlloc(void **pointer, size_t bytes, unsigned flags) { CALL(allocate_host(pointer, bytes, flags)); }

EXPORT int cudaMallocHost(void **pointer, size_t bytes) { CALL(allocate_host(pointer, bytes, 0)); }

EXPORT int cudaFreeHost(void *pointer) { CALL(cuMemFreeHost(pointer)); }

EXPORT int cudaHostRegister(void *pointer, size_t bytes, unsigned flags) { CALL(cuMemHostRegister_v2(pointer, bytes, flags)); }

EXPORT int cudaHostUnregister(void *pointer) { CALL(cuMemHostUnregister(pointer)); }

EXPORT int cudaHostGetDevicePointer(void **made, void *pointer, unsigned flags) { CALL(cuMemHostGetDevicePointer_v2((uint64_t *)made, pointer, flags)); }

EXPORT int cudaHostGetFlags(unsigned *flags, void *pointer) { CALL(cuMemHostGetFlags(flags, pointer)); }

EXPORT int cudaMemGetInfo(size_t *available, size_t *total) { CALL(cuMemGetInfo_v2(available, total)); }

/* ---- hints ---- */

#if CUDART == 12
EXPORT int cudaMemAdvise(const void *pointer, size_t bytes, int advice, int device) { CALL(cuMemAdvise((uint64_t)pointer, bytes, advice, device)); }

EXPORT int cudaMemPrefetchAsync(const void *pointer, size_t bytes, int device, void *stream) {
    CALL(cuMemPrefetchAsync((uint64_t)pointer, bytes, device, stream));
}
PER_THREAD(cudaMemPrefetchAsync, _ptsz);
#define cudaMemAdvise cudaMemAdvise_v2
#define cudaMemPrefetchAsync cudaMemPrefetchAsync_v2
#endif

EXPORT int cudaMemAdvise(const void *pointer, size_t bytes, int advice, struct location location) {
    CALL(cuMemAdvise_v2((uint64_t)pointer, bytes, advice, location));
}

EXPORT int cudaMemPrefetchAsync(const void *pointer, size_t bytes, struct location location, unsigned flags, void *stream) {
    CALL(cuMemPrefetchAsync_v2((uint64_t)pointer, bytes, location, flags, stream));
}
#if CUDART == 12
PER_THREAD(cudaMemPrefetchAsync_v2, _ptsz);
#else
PER_THREAD(cudaMemPrefetchAsync, _ptsz);
#endif

/* ---- pools ---- */

EXPORT int cudaMallocAsync(void **pointer, size_t bytes, void *stream) {
    if (!pointer) return done(INVALID_VALUE);
    *pointer = NULL;
    if (!bytes) return SUCCESS;
    CALL(cuMemAllocAsync((uint64_t *)pointer, bytes, stream));
}
PER_THREAD(cudaMallocAsync, _ptsz);

EXPORT int cudaMallocFromPoolAsync(void **pointer, size_t bytes, void *pool, void *stream) {
    if (!pointer) return done(INVALID_VALUE);
    *pointer = NULL;
    if (!bytes) return SUCCESS;
    CALL(cuMemAllocFromPoolAsync((uint64_t *)pointer, bytes, pool, stream));
}
PER_THREAD(cudaMallocFromPoolAsync, _ptsz);

EXPORT int cudaFreeAsync(void *pointer, void *stream) { CALL(cuMemFreeAsync((uint64_t)pointer, stream)); }
PER_THREAD(cudaFreeAsync, _ptsz);

EXPORT int cudaDeviceGetDefaultMemPool(void **pool, int device) { CALL(cuDeviceGetDefaultMemPool(pool, device)); }

EXPORT int cudaDeviceGetMemPool(void **pool, int device) { CALL(cuDeviceGetMemPool(pool, device)); }

EXPORT int cudaDeviceSetMemPool(int device, void *pool) { CALL(cuDeviceSetMemPool(device, pool)); }

EXPORT int cudaMemGetDefaultMemPool(void **pool, struct location *location, int type) { CALL(cuMemGetDefaultMemPool(pool, location, type)); }

EXPORT int cudaMemGetMemPool(void **pool, struct location *location, int type) { CALL(cuMemGetMemPool(pool, location, type)); }

EXPORT int cudaMemSetMemPool(struct location *location, int type, void *pool) { CALL(cuMemSetMemPool(location, type, pool)); }

EXPORT int cudaMemPoolCreate(void **pool, const void *properties) { CALL(cuMemPoolCreate(pool, properties)); }

EXPORT int cudaMemPoolDestroy(void *pool) { CALL(cuMemPoolDestroy(pool)); }

EXPORT int cudaMemPoolTrimTo(void *pool, size_t keep) { CALL(cuMemPoolTrimTo(pool, keep)); }

EXPORT int cudaMemPoolGetAttribute(void *pool, int attribute, void *value) { CALL(cuMemPoolGetAttribute(pool, attribute, value)); }

EXPORT int cudaMemPoolSetAttribute(void *pool, int attribute, void *value) { CALL(cuMemPoolSetAttribute(pool, attribute, value)); }

EXPORT int cudaMemPoolGetAccess(int *flags, void *pool, struct location *location) { CALL(cuMemPoolGetAccess(flags, pool, location)); }

EXPORT int cudaMemPoolSetAccess(void *pool, const void *map, size_t rows) { CALL(cuMemPoolSetAccess(pool, map, rows)); }

/* ---- pointers ---- */

struct pointer_attributes {
    int type, device;
    void *device_pointer, *host_pointer;
#if CUDART == 13
    long reserved[8];
#endif
};

enum { UNREGISTERED, HOST_MEMORY, DEVICE_MEMORY, MANAGED_MEMORY };
enum { OF_TYPE = 2, OF_DEVICE_POINTER, OF_HOST_POINTER, OF_MANAGED = 8, OF_DEVICE };

static int describe(struct pointer_attributes *made, const void *pointer) {
    if (!made) return INVALID_VALUE;
    int type = 0, device = 0;
    unsigned char managed = 0;
    void *on_device = NULL, *on_host = NULL;
    const int asked[] = {OF_TYPE, OF_DEVICE_POINTER, OF_HOST_POINTER, OF_MANAGED, OF_DEVICE};
    void *answers[] = {&type, &on_device, &on_host, &managed, &device};
    int code = cuPointerGetAttributes(5, asked, answers, (uint64_t)pointer);
    if (code != SUCCESS) return code;
    *made = (struct pointer_attributes){.type = managed ? MANAGED_MEMORY : type, .device = device, .device_pointer = on_device, .host_pointer = on_host};
    if (made->type == UNREGISTERED) made->host_pointer = (void *)pointer;
    return SUCCESS;
}

EXPORT int cudaPointerGetAttributes(struct pointer_attributes *made, const void *pointer) { CALL(describe(made, pointer)); }

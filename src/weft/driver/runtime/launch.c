/* Launches, attributes of kernels, occupancy. */
#include <string.h>

#include "runtime.h"

struct configuration {
    struct dim3 grid, block;
    size_t shared;
    void *stream;
    const void *attributes;
    unsigned count;
};

/* The layout of the driver's configuration differs in the type of the shared memory's size. */
struct driver_configuration {
    struct dim3 grid, block;
    unsigned shared;
    void *stream;
    const void *attributes;
    unsigned count;
};

/* The driver calls every bad argument an invalid value; the runtime has a code for a bad shape. */
static int shape_error(int code, struct dim3 grid, struct dim3 block) {
    if (code != INVALID_VALUE) return code;
    const unsigned given[7] = {block.x * block.y * block.z, block.x, block.y, block.z, grid.x, grid.y, grid.z};
    for (int i = 0; i < 7; i++) { /* device attributes 1 to 7 are their limits */
        int most;
        if (cuDeviceGetAttribute(&most, i + 1, 0) != SUCCESS) return code;
        if (!given[i] || given[i] > (unsigned)most) return INVALID_CONFIGURATION;
    }
    return code;
}

static int launch(const void *host, struct dim3 grid, struct dim3 block, void **parameters, size_t shared, void *stream, int cooperative) {
    void *function;
    int code = ready() ?: find_kernel(host, &function);
    if (code != SUCCESS) return code;
    if (shared > UINT32_MAX) return INVALID_VALUE;
    if (cooperative)
        code = cuLaunchCooperativeKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared, stream, parameters);
    else
        code = cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared, stream, parameters, NULL);
    return shape_error(code, grid, block);
}

EXPORT int cudaLaunchKernel(const void *host, struct dim3 grid, struct dim3 block, void **parameters, size_t shared, void *stream) {
    return done(launch(host, grid, block, parameters, shared, stream, 0));
}
PER_THREAD(cudaLaunchKernel, _ptsz);

EXPORT int cudaLaunchCooperativeKernel(const void *host, struct dim3 grid, struct dim3 block, void **parameters, size_t shared, void *stream) {
    return done(launch(host, grid, block, parameters, shared, stream, 1));
}
PER_THREAD(cudaLaunchCooperativeKernel, _ptsz);

EXPORT int cudaLaunchKernelExC(const struct configuration *given, const void *host, void **parameters) {
    void *function;
    if (!given || given->shared > UINT32_MAX) return done(INVALID_VALUE);
    int code = ready() ?: find_kernel(host, &function);
    if (code != SUCCESS) return done(code);
    struct driver_configuration passed = {given->grid, given->block, (unsigned)given->shared, given->stream, given->attributes, given->count};
    return done(shape_error(cuLaunchKernelEx(&passed, function, parameters, NULL), given->grid, given->block));
}
PER_THREAD(cudaLaunchKernelExC, _ptsz);

/* nvcc's stubs keep the handle in a static variable, where it must outlive cudaDeviceReset: it is the stub's address. */
EXPORT int __cudaGetKernel(void **kernel, const void *host) {
    *kernel = (void *)host;
    return SUCCESS;
}

EXPORT int __cudaLaunchKernel(void *kernel, struct dim3 grid, struct dim3 block, void **parameters, size_t shared, void *stream) {
    return done(launch(kernel, grid, block, parameters, shared, stream, 0));
}
PER_THREAD(__cudaLaunchKernel, _ptsz);

EXPORT int cudaGetFuncBySymbol(void **function, const void *host) {
    if (!function) return done(INVALID_VALUE);
    CALL(find_kernel(host, function));
}

EXPORT int cudaGetKernel(void **kernel, const void *host) { return cudaGetFuncBySymbol(kernel, host); }

EXPORT int cudaLaunchHostFunc(void *stream, void (*function)(void *), void *data) { CALL(cuLaunchHostFunc(stream, function, data)); }
PER_THREAD(cudaLaunchHostFunc, _ptsz);

/* ---- attributes ---- */

struct attributes {
    size_t shared, constant, local;
    int threads, registers, ptx_version, binary_version, cache_mode, dynamic_shared, carveout;
    int cluster_required, cluster[3], cluster_policy, cluster_nonportable, reserved[16];
};

static int get_attributes(struct attributes *given, const void *host) {
    void *function;
    if (!given) return INVALID_VALUE;
    int code = find_kernel(host, &function);
    int value[16] = {0};
    for (int i = 0; i < 16 && code == SUCCESS; i++) code = cuFuncGetAttribute(&value[i], i, function);
    if (code != SUCCESS) return code;
    *given = (struct attributes){
        .threads = value[0], .shared = (size_t)value[1], .constant = (size_t)value[2], .local = (size_t)value[3],
        .registers = value[4], .ptx_version = value[5], .binary_version = value[6], .cache_mode = value[7],
        .dynamic_shared = value[8], .carveout = value[9], .cluster_required = value[10],
        .cluster = {value[11], value[12], value[13]}, .cluster_nonportable = value[14], .cluster_policy = value[15],
    };
    return SUCCESS;
}

EXPORT int cudaFuncGetAttributes(struct attributes *given, const void *host) { CALL(get_attributes(given, host)); }

#define WITH_KERNEL(host, call)                                                                                      \
    void *function;                                                                                                  \
    int code = ready() ?: find_kernel(host, &function);                                                              \
    return done(code != SUCCESS ? code : (call))

EXPORT int cudaFuncSetAttribute(const void *host, int attribute, int value) { WITH_KERNEL(host, cuFuncSetAttribute(function, attribute, value)); }

EXPORT int cudaKernelSetAttributeForDevice(void *kernel, int attribute, int value, int device) {
    if (device) return done(INVALID_DEVICE);
    WITH_KERNEL(kernel, cuFuncSetAttribute(function, attribute, value));
}

EXPORT int cudaFuncSetCacheConfig(const void *host, int config) { WITH_KERNEL(host, cuFuncSetCacheConfig(function, config)); }

EXPORT int cudaFuncSetSharedMemConfig(const void *host, int config) { WITH_KERNEL(host, cuFuncSetSharedMemConfig(function, config)); }

EXPORT int cudaFuncGetName(const char **name, const void *host) { WITH_KERNEL(host, cuFuncGetName(name, function)); }

EXPORT int cudaFuncGetParamInfo(const void *host, size_t index, size_t *offset, size_t *bytes) {
    WITH_KERNEL(host, cuFuncGetParamInfo(function, index, offset, bytes));
}

EXPORT int cudaFuncGetParamCount(const void *host, size_t *count) {
    void *function;
    size_t number = 0, offset, bytes;
    int code = ready() ?: find_kernel(host, &function);
    if (code != SUCCESS || !count) return done(code ?: INVALID_VALUE);
    while (cuFuncGetParamInfo(function, number, &offset, &bytes) == SUCCESS) number++;
    *count = number;
    return SUCCESS;
}

/* ---- occupancy ---- */

EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *host, int threads, size_t shared, unsigned flags) {
    WITH_KERNEL(host, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, flags));
}

EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *host, int threads, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads, shared, 0);
}

EXPORT int cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *host, int blocks, int threads) {
    WITH_KERNEL(host, cuOccupancyAvailableDynamicSMemPerBlock(bytes, function, blocks, threads));
}

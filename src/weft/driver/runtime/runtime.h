/* What the parts of the stand-in CUDA runtime share. It is the documented runtime API, and the functions that nvcc's
 * generated code calls, over the documented driver API of the stand-in driver next to it.
 *
 * Names, numbers and layouts are those of the public documentation; no header of NVIDIA's is included. Handles are
 * `void *`, enumerations `int`. CUDART is the version whose interface is built: 12 or 13. */
#ifndef WEFT_RUNTIME_H
#define WEFT_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#if CUDART == 12
#define RUNTIME_VERSION 12080
#elif CUDART == 13
#define RUNTIME_VERSION 13000
#else
#error "define CUDART as 12 or 13"
#endif

#define EXPORT __attribute__((visibility("default")))
/* The form for programs compiled with a default stream per thread. Calls are done when they return: it is the same. */
#define PER_THREAD(name, suffix) EXPORT __typeof__(name) name##suffix __attribute__((alias(#name)))

/* Where runtime and driver have a code for the same error, it is the same number. */
enum error {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_CONFIGURATION = 9,
    INVALID_PITCH = 12,
    INVALID_SYMBOL = 13,
    INVALID_DIRECTION = 21,
    MISSING_CONFIGURATION = 52,
    INVALID_FUNCTION = 98,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_PTX = 218,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
};

enum direction { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, BY_ADDRESS };

struct dim3 {
    unsigned x, y, z;
};

struct extent {
    size_t width, height, depth;
};

struct pitched {
    void *pointer;
    size_t pitch, width, height;
};

struct location {
    int type, id;
};

/* ---- errors (errors.c) ---- */

/* Keeps an error for cudaGetLastError, and returns it. */
int done(int code);
/* Makes the primary context current if the thread has no context. */
int ready(void);
void forget_errors(void);
/* Returns from an entry point: the call is made with a context. */
#define CALL(call) return done(ready() ?: (call))

/* ---- what nvcc's generated code registered (registry.c) ---- */

/* Finds the driver's function for the address of a kernel's stub, or for a handle of a kernel. */
int find_kernel(const void *host, void **function);
/* Finds a variable by its address on the host. */
int find_variable(const void *host, uint64_t *address, size_t *bytes);
/* Forgets what was loaded; the next use loads it again. */
void unload_everything(void);

/* ---- the driver ---- */

int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuGetErrorString(int code, const char **text);
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status);
int cuDeviceGetCount(int *count);
int cuDeviceGetName(char *name, int length, int device);
int cuDeviceGetUuid_v2(void *uuid, int device);
int cuDeviceTotalMem_v2(size_t *bytes, int device);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDeviceGetPCIBusId(char *text, int length, int device);
int cuDeviceGetByPCIBusId(int *device, const char *text);
int cuDeviceCanAccessPeer(int *can, int device, int peer);
int cuDeviceGetP2PAttribute(int *value, int attribute, int source, int target);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxReset_v2(int device);
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags);
int cuCtxGetCurrent(void **context);
int cuCtxSetCurrent(void *context);
int cuCtxSynchronize(void);
int cuCtxGetFlags(unsigned *flags);
int cuCtxGetLimit(size_t *value, int limit);
int cuCtxSetLimit(int limit, size_t value);
int cuCtxGetCacheConfig(int *config);
int cuCtxSetCacheConfig(int config);
int cuCtxGetSharedMemConfig(int *config);
int cuCtxSetSharedMemConfig(int config);
int cuCtxGetStreamPriorityRange(int *least, int *greatest);
int cuCtxResetPersistingL2Cache(void);
int cuProfilerStart(void);
int cuProfilerStop(void);

int cuModuleLoadData(void **module, const void *image);
int cuModuleUnload(void *module);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuModuleGetGlobal_v2(uint64_t *address, size_t *bytes, void *module, const char *name);
int cuLibraryLoadData(void **library, const void *code, int *options, void **values, unsigned count, int *library_options, void **library_values,
                      unsigned library_count);
int cuLibraryLoadFromFile(void **library, const char *path, int *options, void **values, unsigned count, int *library_options, void **library_values,
                          unsigned library_count);
int cuLibraryUnload(void *library);
int cuLibraryGetKernel(void **kernel, void *library, const char *name);
int cuLibraryGetKernelCount(unsigned *count, void *library);
int cuLibraryEnumerateKernels(void **kernels, unsigned count, void *library);
int cuLibraryGetGlobal(uint64_t *address, size_t *bytes, void *library, const char *name);
int cuLibraryGetManaged(uint64_t *address, size_t *bytes, void *library, const char *name);
int cuLinkCreate_v2(unsigned count, int *options, void **values, void **state);
int cuLinkAddData_v2(void *state, int type, void *data, size_t bytes, const char *name, unsigned count, int *options, void **values);
int cuLinkComplete(void *state, void **image, size_t *bytes);
int cuLinkDestroy(void *state);
int cuFuncGetAttribute(int *value, int attribute, void *function);
int cuFuncSetAttribute(void *function, int attribute, int value);
int cuFuncSetCacheConfig(void *function, int config);
int cuFuncSetSharedMemConfig(void *function, int config);
int cuFuncGetName(const char **name, void *function);
int cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *bytes);

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream,
                   void **parameters, void **extra);
int cuLaunchCooperativeKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream,
                              void **parameters);
int cuLaunchKernelEx(const void *configuration, void *function, void **parameters, void **extra);
int cuLaunchHostFunc(void *stream, void (*function)(void *), void *data);
int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, void *function, int threads, size_t shared, unsigned flags);
int cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, void *function, int blocks, int threads);

int cuMemAlloc_v2(uint64_t *address, size_t bytes);
int cuMemAllocPitch_v2(uint64_t *address, size_t *pitch, size_t width, size_t height, unsigned element);
int cuMemFree_v2(uint64_t address);
int cuMemAllocManaged(uint64_t *address, size_t bytes, unsigned flags);
int cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags);
int cuMemFreeHost(void *pointer);
int cuMemHostGetDevicePointer_v2(uint64_t *address, void *pointer, unsigned flags);
int cuMemHostGetFlags(unsigned *flags, void *pointer);
int cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags);
int cuMemHostUnregister(void *pointer);
int cuMemGetInfo_v2(size_t *available, size_t *total);
int cuMemAdvise(uint64_t address, size_t bytes, int advice, int device);
int cuMemAdvise_v2(uint64_t address, size_t bytes, int advice, struct location location);
int cuMemPrefetchAsync(uint64_t address, size_t bytes, int device, void *stream);
int cuMemPrefetchAsync_v2(uint64_t address, size_t bytes, struct location location, unsigned flags, void *stream);
int cuPointerGetAttributes(unsigned number, const int *attributes, void **values, uint64_t address);
int cuMemAllocAsync(uint64_t *address, size_t bytes, void *stream);
int cuMemAllocFromPoolAsync(uint64_t *address, size_t bytes, void *pool, void *stream);
int cuMemFreeAsync(uint64_t address, void *stream);
int cuDeviceGetDefaultMemPool(void **pool, int device);
int cuDeviceGetMemPool(void **pool, int device);
int cuDeviceSetMemPool(int device, void *pool);
int cuMemGetDefaultMemPool(void **pool, const struct location *location, int type);
int cuMemGetMemPool(void **pool, const struct location *location, int type);
int cuMemSetMemPool(const struct location *location, int type, void *pool);
int cuMemPoolCreate(void **pool, const void *properties);
int cuMemPoolDestroy(void *pool);
int cuMemPoolTrimTo(void *pool, size_t keep);
int cuMemPoolGetAttribute(void *pool, int attribute, void *value);
int cuMemPoolSetAttribute(void *pool, int attribute, const void *value);
int cuMemPoolGetAccess(int *flags, void *pool, const struct location *location);
int cuMemPoolSetAccess(void *pool, const void *map, size_t rows);

int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *stream);
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream);
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream);
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream);
int cuMemcpy2DAsync_v2(const void *rectangle, void *stream);
int cuMemcpy3DAsync_v2(const void *box, void *stream);
int cuMemsetD8Async(uint64_t to, uint8_t value, size_t number, void *stream);
int cuMemsetD2D8Async(uint64_t to, size_t pitch, uint8_t value, size_t width, size_t height, void *stream);

int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority);
int cuStreamDestroy_v2(void *stream);
int cuStreamSynchronize(void *stream);
int cuStreamQuery(void *stream);
int cuStreamWaitEvent(void *stream, void *event, unsigned flags);
int cuStreamGetFlags(void *stream, unsigned *flags);
int cuStreamGetPriority(void *stream, int *priority);
int cuStreamGetId(void *stream, uint64_t *id);
int cuStreamGetDevice(void *stream, int *device);
int cuStreamIsCapturing(void *stream, int *status);
int cuStreamGetCaptureInfo_v2(void *stream, int *status, uint64_t *id, void **graph, void **nodes, size_t *count);
int cuStreamGetCaptureInfo_v3(void *stream, int *status, uint64_t *id, void **graph, void **nodes, void **edges, size_t *count);
int cuStreamAddCallback(void *stream, void (*function)(void *, int, void *), void *data, unsigned flags);
int cuStreamAttachMemAsync(void *stream, uint64_t address, size_t bytes, unsigned flags);
int cuThreadExchangeStreamCaptureMode(int *mode);
int cuEventCreate(void **event, unsigned flags);
int cuEventDestroy_v2(void *event);
int cuEventRecordWithFlags(void *event, void *stream, unsigned flags);
int cuEventSynchronize(void *event);
int cuEventQuery(void *event);
int cuEventElapsedTime_v2(float *milliseconds, void *start, void *end);

/* Not of the driver's API: refuses what the virtual GPU cannot do, by its name (shim/table.c). */
int weftRefuse(const char *name, const char *why);

#endif

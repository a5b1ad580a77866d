/* The device, its limits, versions, and the driver's entry points. */
#include "runtime.h"

EXPORT int cudaDriverGetVersion(int *version) { return done(cuDriverGetVersion(version)); }

EXPORT int cudaRuntimeGetVersion(int *version) {
    if (!version) return done(INVALID_VALUE);
    *version = RUNTIME_VERSION;
    return SUCCESS;
}

EXPORT int cudaGetDeviceCount(int *count) { CALL(cuDeviceGetCount(count)); }

EXPORT int cudaGetDevice(int *device) {
    if (!device) return done(INVALID_VALUE);
    *device = 0;
    CALL(SUCCESS);
}

EXPORT int cudaSetDevice(int device) { CALL(device ? INVALID_DEVICE : SUCCESS); }

EXPORT int cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
    CALL(device ? INVALID_DEVICE : flags ? cuDevicePrimaryCtxSetFlags_v2(0, device_flags) : SUCCESS);
}

EXPORT int cudaSetValidDevices(int *devices, int count) {
    for (int i = 0; i < count; i++)
        if (!devices || devices[i]) return done(INVALID_DEVICE);
    return SUCCESS;
}

EXPORT int cudaSetDeviceFlags(unsigned flags) { CALL(cuDevicePrimaryCtxSetFlags_v2(0, flags)); }

EXPORT int cudaGetDeviceFlags(unsigned *flags) { CALL(cuCtxGetFlags(flags)); }

EXPORT int cudaDeviceGetAttribute(int *value, int attribute, int device) { CALL(cuDeviceGetAttribute(value, attribute, device)); }

EXPORT int cudaDeviceGetPCIBusId(char *text, int length, int device) { CALL(cuDeviceGetPCIBusId(text, length, device)); }

EXPORT int cudaDeviceGetByPCIBusId(int *device, const char *text) { CALL(cuDeviceGetByPCIBusId(device, text)); }

EXPORT int cudaDeviceCanAccessPeer(int *can, int device, int peer) { CALL(cuDeviceCanAccessPeer(can, device, peer)); }

/* There is one device, which is no peer of itself. */
EXPORT int cudaDeviceEnablePeerAccess(int peer, unsigned flags) { CALL(INVALID_DEVICE); }

EXPORT int cudaDeviceDisablePeerAccess(int peer) { CALL(INVALID_DEVICE); }

EXPORT int cudaDeviceGetP2PAttribute(int *value, int attribute, int source, int target) {
    CALL(cuDeviceGetP2PAttribute(value, attribute, source, target));
}

EXPORT int cudaDeviceSynchronize(void) { CALL(cuCtxSynchronize()); }

EXPORT int cudaDeviceReset(void) {
    int code = ready();
    if (code != SUCCESS) return done(code);
    unload_everything();
    code = cuDevicePrimaryCtxReset_v2(0);
    forget_errors();
    return done(code);
}

EXPORT int cudaDeviceGetLimit(size_t *value, int limit) { CALL(cuCtxGetLimit(value, limit)); }

EXPORT int cudaDeviceSetLimit(int limit, size_t value) { CALL(cuCtxSetLimit(limit, value)); }

EXPORT int cudaDeviceGetCacheConfig(int *config) { CALL(cuCtxGetCacheConfig(config)); }

EXPORT int cudaDeviceSetCacheConfig(int config) { CALL(cuCtxSetCacheConfig(config)); }

EXPORT int cudaDeviceGetSharedMemConfig(int *config) { CALL(cuCtxGetSharedMemConfig(config)); }

EXPORT int cudaDeviceSetSharedMemConfig(int config) { CALL(cuCtxSetSharedMemConfig(config)); }

EXPORT int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { CALL(cuCtxGetStreamPriorityRange(least, greatest)); }

EXPORT int cudaCtxResetPersistingL2Cache(void) { CALL(cuCtxResetPersistingL2Cache()); }

EXPORT int cudaProfilerStart(void) { CALL(cuProfilerStart()); }

EXPORT int cudaProfilerStop(void) { CALL(cuProfilerStop()); }

#if CUDART == 12 /* older names, which CUDA 13 no longer has */
EXPORT int cudaThreadSynchronize(void) { return cudaDeviceSynchronize(); }

EXPORT int cudaThreadExit(void) { return cudaDeviceReset(); }

EXPORT int cudaThreadGetLimit(size_t *value, int limit) { return cudaDeviceGetLimit(value, limit); }

EXPORT int cudaThreadSetLimit(int limit, size_t value) { return cudaDeviceSetLimit(limit, value); }

EXPORT int cudaThreadGetCacheConfig(int *config) { return cudaDeviceGetCacheConfig(config); }

EXPORT int cudaThreadSetCacheConfig(int config) { return cudaDeviceSetCacheConfig(config); }
#endif

/* ---- the driver's entry points ---- */

static int entry_point(const char *name, void **function, int version, uint64_t flags, int *status) {
    int found;
    int code = cuGetProcAddress_v2(name, function, version, flags, &found);
    if (code != SUCCESS) return code;
    if (status) *status = found;
    return *function || status ? SUCCESS : NOT_FOUND;
}

EXPORT int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags, int *status) {
    CALL(entry_point(name, function, (int)version, flags, status));
}
PER_THREAD(cudaGetDriverEntryPointByVersion, _ptsz);

EXPORT int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *status) {
    CALL(entry_point(name, function, RUNTIME_VERSION, flags, status));
}
PER_THREAD(cudaGetDriverEntryPoint, _ptsz);

/* ---- libraries of kernels ---- */

EXPORT int cudaLibraryLoadData(void **library, const void *code, int *options, void **values, unsigned count, int *library_options, void **library_values,
                               unsigned library_count) {
    CALL(cuLibraryLoadData(library, code, options, values, count, library_options, library_values, library_count));
}

EXPORT int cudaLibraryLoadFromFile(void **library, const char *path, int *options, void **values, unsigned count, int *library_options,
                                   void **library_values, unsigned library_count) {
    CALL(cuLibraryLoadFromFile(library, path, options, values, count, library_options, library_values, library_count));
}

EXPORT int cudaLibraryUnload(void *library) { CALL(cuLibraryUnload(library)); }

EXPORT int cudaLibraryGetKernel(void **kernel, void *library, const char *name) { CALL(cuLibraryGetKernel(kernel, library, name)); }

EXPORT int cudaLibraryGetKernelCount(unsigned *count, void *library) { CALL(cuLibraryGetKernelCount(count, library)); }

EXPORT int cudaLibraryEnumerateKernels(void **kernels, unsigned count, void *library) { CALL(cuLibraryEnumerateKernels(kernels, count, library)); }

EXPORT int cudaLibraryGetGlobal(void **pointer, size_t *bytes, void *library, const char *name) {
    CALL(cuLibraryGetGlobal((uint64_t *)pointer, bytes, library, name));
}

EXPORT int cudaLibraryGetManaged(void **pointer, size_t *bytes, void *library, const char *name) {
    CALL(cuLibraryGetManaged((uint64_t *)pointer, bytes, library, name));
}

/* ---- a description of texels, without effect on a device ---- */

struct channels {
    int x, y, z, w, kind;
};

EXPORT struct channels cudaCreateChannelDesc(int x, int y, int z, int w, int kind) { return (struct channels){x, y, z, w, kind}; }

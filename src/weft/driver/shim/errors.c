/* Names and descriptions of result codes. */
#include <stddef.h>

#include "shim.h"

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "the driver is not initialised, or the process was forked after cuInit"},
    {4, "CUDA_ERROR_DEINITIALIZED", "the driver is shutting down"},
    {5, "CUDA_ERROR_PROFILER_DISABLED", "the profiler is disabled"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "the library is a stub"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "the device is unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no device: start the program by `weft exec`"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device number"},
    {102, "CUDA_ERROR_DEVICE_NOT_LICENSED", "the device is not licensed"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "the kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid context, or none is current"},
    {205, "CUDA_ERROR_MAP_FAILED", "mapping failed"},
    {206, "CUDA_ERROR_UNMAP_FAILED", "unmapping failed"},
    {207, "CUDA_ERROR_ARRAY_IS_MAPPED", "the array is mapped"},
    {208, "CUDA_ERROR_ALREADY_MAPPED", "the resource is mapped already"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "the image has no code for this device"},
    {210, "CUDA_ERROR_ALREADY_ACQUIRED", "the resource is acquired already"},
    {211, "CUDA_ERROR_NOT_MAPPED", "the resource is not mapped"},
    {212, "CUDA_ERROR_NOT_MAPPED_AS_ARRAY", "the resource is not mapped as an array"},
    {213, "CUDA_ERROR_NOT_MAPPED_AS_POINTER", "the resource is not mapped as a pointer"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable memory error"},
    {215, "CUDA_ERROR_UNSUPPORTED_LIMIT", "the limit is not supported"},
    {216, "CUDA_ERROR_CONTEXT_ALREADY_IN_USE", "the context is in use by another thread"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported"},
    {218, "CUDA_ERROR_INVALID_PTX", "invalid PTX"},
    {219, "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", "invalid graphics context"},
    {220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "uncorrectable NVLink error"},
    {221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "the PTX compiler was not found"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the version of the PTX is not supported"},
    {223, "CUDA_ERROR_JIT_COMPILATION_DISABLED", "compiling PTX is disabled"},
    {224, "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", "the execution affinity is not supported"},
    {225, "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC", "the code waits for launches of its own kernels"},
    {300, "CUDA_ERROR_INVALID_SOURCE", "invalid source"},
    {301, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {302, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "symbol of a shared object not found"},
    {303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "a shared object could not be initialised"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "a call of the operating system failed"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid handle"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "the resource is not in the required state"},
    {402, "CUDA_ERROR_LOSSY_QUERY", "the answer would lose data of graph edges"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "the work is not finished"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel accessed an illegal address"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "the launch requires too many resources"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "a kernel did not end"},
    {703, "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", "the launch uses an incompatible texturing mode"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is enabled already"},
    {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access is not enabled"},
    {708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "the primary context is active already"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "the context was destroyed"},
    {710, "CUDA_ERROR_ASSERT", "an assertion of a kernel failed"},
    {711, "CUDA_ERROR_TOO_MANY_PEERS", "too many peers"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "the host memory is registered already"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "the host memory is not registered"},
    {714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "a kernel's call stack is damaged or too large"},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "a kernel executed an illegal instruction"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "a kernel accessed a misaligned address"},
    {717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", "a kernel used an address of another state space"},
    {718, "CUDA_ERROR_INVALID_PC", "a kernel's program counter is invalid"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "a kernel failed"},
    {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "the cooperative grid is larger than the device holds at once"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "the operation is not permitted"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "the operation is not supported"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "the system is not ready"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "versions of the driver differ"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "the operation cannot be captured"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "the capture was invalidated by an error"},
    {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "the captures cannot be merged"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "the capture was begun in another stream"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "the capture has a branch that was not joined"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "the dependency would cross a capture"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "the call depends on the legacy stream"},
    {907, "CUDA_ERROR_CAPTURED_EVENT", "the event belongs to a capture"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "the capture was begun by another thread"},
    {909, "CUDA_ERROR_TIMEOUT", "the wait timed out"},
    {910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graph could not be updated"},
    {911, "CUDA_ERROR_EXTERNAL_DEVICE", "an external device failed"},
    {912, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "invalid cluster size"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static int find(int code) {
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code) return (int)i;
    return -1;
}

EXPORT int cuGetErrorName(int code, const char **name) {
    CALL(NOTHING, code, name);
    int at = find(code);
    if (name) *name = at < 0 ? NULL : errors[at].name;
    RETURN(!name || at < 0 ? INVALID_VALUE : SUCCESS);
}

EXPORT int cuGetErrorString(int code, const char **text) {
    CALL(NOTHING, code, text);
    int at = find(code);
    if (text) *text = at < 0 ? NULL : errors[at].text;
    RETURN(!text || at < 0 ? INVALID_VALUE : SUCCESS);
}

/* The thread's last error, and names and texts of errors. */
#include <pthread.h>

#include "runtime.h"

static __thread int last;
static void *primary;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int done(int code) {
    if (code != SUCCESS && code != NOT_READY) last = code;
    return code;
}

void forget_errors(void) { last = SUCCESS; }

int ready(void) {
    void *current = NULL;
    if (cuCtxGetCurrent(&current) == SUCCESS && current) return SUCCESS;
    int code = cuInit(0);
    pthread_mutex_lock(&lock);
    if (code == SUCCESS && !primary) code = cuDevicePrimaryCtxRetain(&primary, 0);
    pthread_mutex_unlock(&lock);
    return code != SUCCESS ? code : cuCtxSetCurrent(primary);
}

/* The fault of a kernel stays until the device is reset. */
static int stays(int code) {
    int fault = code == 700 || code == 702 || code == 710 || (code >= 714 && code <= 719);
    return fault && cuCtxSynchronize() != SUCCESS;
}

EXPORT int cudaPeekAtLastError(void) { return last; }

EXPORT int cudaGetLastError(void) {
    int code = last;
    if (!stays(code)) last = SUCCESS;
    return code;
}

/* ---- names; where the text is NULL, the driver has one for the same number ---- */

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {0, "cudaSuccess", NULL},
    {1, "cudaErrorInvalidValue", NULL},
    {2, "cudaErrorMemoryAllocation", NULL},
    {3, "cudaErrorInitializationError", NULL},
    {4, "cudaErrorCudartUnloading", NULL},
    {5, "cudaErrorProfilerDisabled", NULL},
    {6, "cudaErrorProfilerNotInitialized", "the profiler is not initialised"},
    {7, "cudaErrorProfilerAlreadyStarted", "the profiler has been started already"},
    {8, "cudaErrorProfilerAlreadyStopped", NULL},
    {9, "cudaErrorInvalidConfiguration", "invalid configuration of a launch"},
    {12, "cudaErrorInvalidPitchValue", "invalid pitch"},
    {13, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {16, "cudaErrorInvalidHostPointer", "invalid host pointer"},
    {17, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    {18, "cudaErrorInvalidTexture", "invalid texture"},
    {19, "cudaErrorInvalidTextureBinding", "invalid texture binding"},
    {20, "cudaErrorInvalidChannelDescriptor", "invalid channel descriptor"},
    {21, "cudaErrorInvalidMemcpyDirection", "invalid direction of a copy"},
    {34, "cudaErrorStubLibrary", NULL},
    {35, "cudaErrorInsufficientDriver", "the driver is older than the runtime"},
    {36, "cudaErrorCallRequiresNewerDriver", "the call needs a newer driver"},
    {37, "cudaErrorInvalidSurface", "invalid surface"},
    {46, "cudaErrorDevicesUnavailable", NULL},
    {49, "cudaErrorIncompatibleDriverContext", "the driver's context does not fit the runtime"},
    {52, "cudaErrorMissingConfiguration", "a launch has no configuration"},
    {53, "cudaErrorPriorLaunchFailure", "an earlier launch failed"},
    {98, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {100, "cudaErrorNoDevice", NULL},
    {101, "cudaErrorInvalidDevice", NULL},
    {102, "cudaErrorDeviceNotLicensed", NULL},
    {103, "cudaErrorSoftwareValidityNotEstablished", NULL},
    {200, "cudaErrorInvalidKernelImage", NULL},
    {201, "cudaErrorDeviceUninitialized", NULL},
    {205, "cudaErrorMapBufferObjectFailed", NULL},
    {206, "cudaErrorUnmapBufferObjectFailed", NULL},
    {207, "cudaErrorArrayIsMapped", NULL},
    {208, "cudaErrorAlreadyMapped", NULL},
    {209, "cudaErrorNoKernelImageForDevice", NULL},
    {210, "cudaErrorAlreadyAcquired", NULL},
    {211, "cudaErrorNotMapped", NULL},
    {212, "cudaErrorNotMappedAsArray", NULL},
    {213, "cudaErrorNotMappedAsPointer", NULL},
    {214, "cudaErrorECCUncorrectable", NULL},
    {215, "cudaErrorUnsupportedLimit", NULL},
    {216, "cudaErrorDeviceAlreadyInUse", NULL},
    {217, "cudaErrorPeerAccessUnsupported", NULL},
    {218, "cudaErrorInvalidPtx", NULL},
    {219, "cudaErrorInvalidGraphicsContext", NULL},
    {220, "cudaErrorNvlinkUncorrectable", NULL},
    {221, "cudaErrorJitCompilerNotFound", NULL},
    {222, "cudaErrorUnsupportedPtxVersion", NULL},
    {223, "cudaErrorJitCompilationDisabled", NULL},
    {224, "cudaErrorUnsupportedExecAffinity", NULL},
    {225, "cudaErrorUnsupportedDevSideSync", NULL},
    {300, "cudaErrorInvalidSource", NULL},
    {301, "cudaErrorFileNotFound", NULL},
    {302, "cudaErrorSharedObjectSymbolNotFound", NULL},
    {303, "cudaErrorSharedObjectInitFailed", NULL},
    {304, "cudaErrorOperatingSystem", NULL},
    {400, "cudaErrorInvalidResourceHandle", NULL},
    {401, "cudaErrorIllegalState", NULL},
    {500, "cudaErrorSymbolNotFound", NULL},
    {600, "cudaErrorNotReady", NULL},
    {700, "cudaErrorIllegalAddress", NULL},
    {701, "cudaErrorLaunchOutOfResources", NULL},
    {702, "cudaErrorLaunchTimeout", NULL},
    {703, "cudaErrorLaunchIncompatibleTexturing", NULL},
    {704, "cudaErrorPeerAccessAlreadyEnabled", NULL},
    {705, "cudaErrorPeerAccessNotEnabled", NULL},
    {708, "cudaErrorSetOnActiveProcess", NULL},
    {709, "cudaErrorContextIsDestroyed", NULL},
    {710, "cudaErrorAssert", NULL},
    {711, "cudaErrorTooManyPeers", NULL},
    {712, "cudaErrorHostMemoryAlreadyRegistered", NULL},
    {713, "cudaErrorHostMemoryNotRegistered", NULL},
    {714, "cudaErrorHardwareStackError", NULL},
    {715, "cudaErrorIllegalInstruction", NULL},
    {716, "cudaErrorMisalignedAddress", NULL},
    {717, "cudaErrorInvalidAddressSpace", NULL},
    {718, "cudaErrorInvalidPc", NULL},
    {719, "cudaErrorLaunchFailure", NULL},
    {720, "cudaErrorCooperativeLaunchTooLarge", NULL},
    {800, "cudaErrorNotPermitted", NULL},
    {801, "cudaErrorNotSupported", NULL},
    {802, "cudaErrorSystemNotReady", NULL},
    {803, "cudaErrorSystemDriverMismatch", NULL},
    {900, "cudaErrorStreamCaptureUnsupported", NULL},
    {901, "cudaErrorStreamCaptureInvalidated", NULL},
    {902, "cudaErrorStreamCaptureMerge", NULL},
    {903, "cudaErrorStreamCaptureUnmatched", NULL},
    {904, "cudaErrorStreamCaptureUnjoined", NULL},
    {905, "cudaErrorStreamCaptureIsolation", NULL},
    {906, "cudaErrorStreamCaptureImplicit", NULL},
    {907, "cudaErrorCapturedEvent", NULL},
    {908, "cudaErrorStreamCaptureWrongThread", NULL},
    {909, "cudaErrorTimeout", NULL},
    {910, "cudaErrorGraphExecUpdateFailure", NULL},
    {911, "cudaErrorExternalDevice", NULL},
    {912, "cudaErrorInvalidClusterSize", NULL},
    {999, "cudaErrorUnknown", NULL},
};

static int find(int code) {
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code) return (int)i;
    return -1;
}

EXPORT const char *cudaGetErrorName(int code) {
    int at = find(code);
    return at < 0 ? "unrecognized error code" : errors[at].name;
}

EXPORT const char *cudaGetErrorString(int code) {
    const char *text = NULL;
    int at = find(code);
    if (at >= 0 && errors[at].text) return errors[at].text;
    return cuGetErrorString(code, &text) == SUCCESS ? text : "unrecognized error code";
}

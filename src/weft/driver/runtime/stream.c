/* Streams and events. */
#include "runtime.h"

EXPORT int cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority) { CALL(cuStreamCreateWithPriority(stream, flags, priority)); }

EXPORT int cudaStreamCreateWithFlags(void **stream, unsigned flags) { return cudaStreamCreateWithPriority(stream, flags, 0); }

EXPORT int cudaStreamCreate(void **stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

EXPORT int cudaStreamDestroy(void *stream) { CALL(cuStreamDestroy_v2(stream)); }

EXPORT int cudaStreamSynchronize(void *stream) { CALL(cuStreamSynchronize(stream)); }
PER_THREAD(cudaStreamSynchronize, _ptsz);

EXPORT int cudaStreamQuery(void *stream) { CALL(cuStreamQuery(stream)); }
PER_THREAD(cudaStreamQuery, _ptsz);

EXPORT int cudaStreamWaitEvent(void *stream, void *event, unsigned flags) { CALL(cuStreamWaitEvent(stream, event, flags)); }
PER_THREAD(cudaStreamWaitEvent, _ptsz);

EXPORT int cudaStreamGetFlags(void *stream, unsigned *flags) { CALL(cuStreamGetFlags(stream, flags)); }
PER_THREAD(cudaStreamGetFlags, _ptsz);

EXPORT int cudaStreamGetPriority(void *stream, int *priority) { CALL(cuStreamGetPriority(stream, priority)); }
PER_THREAD(cudaStreamGetPriority, _ptsz);

EXPORT int cudaStreamGetId(void *stream, unsigned long long *id) { CALL(cuStreamGetId(stream, (uint64_t *)id)); }
PER_THREAD(cudaStreamGetId, _ptsz);

EXPORT int cudaStreamGetDevice(void *stream, int *device) { CALL(cuStreamGetDevice(stream, device)); }
PER_THREAD(cudaStreamGetDevice, _ptsz);

EXPORT int cudaStreamAddCallback(void *stream, void (*function)(void *, int, void *), void *data, unsigned flags) {
    CALL(cuStreamAddCallback(stream, function, data, flags));
}
PER_THREAD(cudaStreamAddCallback, _ptsz);

EXPORT int cudaStreamAttachMemAsync(void *stream, void *pointer, size_t bytes, unsigned flags) {
    CALL(cuStreamAttachMemAsync(stream, (uint64_t)pointer, bytes, flags));
}
PER_THREAD(cudaStreamAttachMemAsync, _ptsz);

/* ---- capture ---- */

EXPORT int cudaStreamIsCapturing(void *stream, int *status) { CALL(cuStreamIsCapturing(stream, status)); }
PER_THREAD(cudaStreamIsCapturing, _ptsz);

EXPORT int cudaThreadExchangeStreamCaptureMode(int *mode) { CALL(cuThreadExchangeStreamCaptureMode(mode)); }

#if CUDART == 12
EXPORT int cudaStreamGetCaptureInfo(void *stream, int *status, unsigned long long *id) {
    CALL(cuStreamGetCaptureInfo_v2(stream, status, (uint64_t *)id, NULL, NULL, NULL));
}
PER_THREAD(cudaStreamGetCaptureInfo, _ptsz);

EXPORT int cudaStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id, void **graph, void **nodes, size_t *count) {
    CALL(cuStreamGetCaptureInfo_v2(stream, status, (uint64_t *)id, graph, nodes, count));
}
PER_THREAD(cudaStreamGetCaptureInfo_v2, _ptsz);

EXPORT int cudaStreamGetCaptureInfo_v3(void *stream, int *status, unsigned long long *id, void **graph, void **nodes, void **edges, size_t *count) {
    CALL(cuStreamGetCaptureInfo_v3(stream, status, (uint64_t *)id, graph, nodes, edges, count));
}
PER_THREAD(cudaStreamGetCaptureInfo_v3, _ptsz);
#else
EXPORT int cudaStreamGetCaptureInfo(void *stream, int *status, unsigned long long *id, void **graph, void **nodes, void **edges, size_t *count) {
    CALL(cuStreamGetCaptureInfo_v3(stream, status, (uint64_t *)id, graph, nodes, edges, count));
}
PER_THREAD(cudaStreamGetCaptureInfo, _ptsz);
#endif

/* ---- events ---- */

EXPORT int cudaEventCreateWithFlags(void **event, unsigned flags) { CALL(cuEventCreate(event, flags)); }

EXPORT int cudaEventCreate(void **event) { CALL(cuEventCreate(event, 0)); }

EXPORT int cudaEventDestroy(void *event) { CALL(cuEventDestroy_v2(event)); }

EXPORT int cudaEventRecordWithFlags(void *event, void *stream, unsigned flags) { CALL(cuEventRecordWithFlags(event, stream, flags)); }
PER_THREAD(cudaEventRecordWithFlags, _ptsz);

EXPORT int cudaEventRecord(void *event, void *stream) { return cudaEventRecordWithFlags(event, stream, 0); }
PER_THREAD(cudaEventRecord, _ptsz);

EXPORT int cudaEventSynchronize(void *event) { CALL(cuEventSynchronize(event)); }

EXPORT int cudaEventQuery(void *event) { CALL(cuEventQuery(event)); }

EXPORT int cudaEventElapsedTime(float *milliseconds, void *start, void *end) { CALL(cuEventElapsedTime_v2(milliseconds, start, end)); }

#if CUDART == 12
EXPORT int cudaEventElapsedTime_v2(float *milliseconds, void *start, void *end) { return cudaEventElapsedTime(milliseconds, start, end); }
#endif

/* Capture, and the calls for graphs that the driver has in the same form. */
#include "graph.h"

EXPORT int cudaStreamBeginCapture(void *stream, int mode) { CALL(cuStreamBeginCapture_v2(stream, mode)); }
PER_THREAD(cudaStreamBeginCapture, _ptsz);

EXPORT int cudaGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags) { CALL(cuGraphInstantiateWithFlags(exec, graph, flags)); }

EXPORT int cudaGraphInstantiate(void **exec, void *graph, unsigned long long flags) { return cudaGraphInstantiateWithFlags(exec, graph, flags); }

EXPORT int cudaGraphExecUpdate(void *exec, void *graph, void *found) { CALL(cuGraphExecUpdate_v2(exec, graph, found)); }

EXPORT int cudaStreamBeginCaptureToGraph(void *stream, void *graph, void *const *nodes, const void *data, size_t count, int mode) {
    CALL(cuStreamBeginCaptureToGraph(stream, graph, nodes, data, count, mode));
}
PER_THREAD(cudaStreamBeginCaptureToGraph, _ptsz);

EXPORT int cudaStreamEndCapture(void *stream, void **graph) { CALL(cuStreamEndCapture(stream, graph)); }
PER_THREAD(cudaStreamEndCapture, _ptsz);

EXPORT int cudaGraphCreate(void **graph, unsigned flags) { CALL(cuGraphCreate(graph, flags)); }

EXPORT int cudaGraphDestroy(void *graph) { CALL(cuGraphDestroy(graph)); }

EXPORT int cudaGraphClone(void **copy, void *graph) { CALL(cuGraphClone(copy, graph)); }

EXPORT int cudaGraphNodeFindInClone(void **found, void *node, void *copy) { CALL(cuGraphNodeFindInClone(found, node, copy)); }

EXPORT int cudaGraphDestroyNode(void *node) { CALL(cuGraphDestroyNode(node)); }

EXPORT int cudaGraphGetNodes(void *graph, void **nodes, size_t *count) { CALL(cuGraphGetNodes(graph, nodes, count)); }

EXPORT int cudaGraphGetRootNodes(void *graph, void **nodes, size_t *count) { CALL(cuGraphGetRootNodes(graph, nodes, count)); }

EXPORT int cudaGraphNodeGetType(void *node, int *type) { CALL(cuGraphNodeGetType(node, type)); }

EXPORT int cudaGraphDebugDotPrint(void *graph, const char *path, unsigned flags) { CALL(cuGraphDebugDotPrint(graph, path, flags)); }

EXPORT int cudaGraphKernelNodeGetParams(void *node, void *shown) { CALL(cuGraphKernelNodeGetParams(node, shown)); }

EXPORT int cudaGraphMemsetNodeGetParams(void *node, void *shown) { CALL(cuGraphMemsetNodeGetParams(node, shown)); }

EXPORT int cudaGraphMemsetNodeSetParams(void *node, const void *given) { CALL(cuGraphMemsetNodeSetParams(node, given)); }

EXPORT int cudaGraphAddHostNode(void **made, void *graph, void *const *nodes, size_t count, const void *given) {
    CALL(cuGraphAddHostNode(made, graph, nodes, count, given));
}

EXPORT int cudaGraphHostNodeGetParams(void *node, void *shown) { CALL(cuGraphHostNodeGetParams(node, shown)); }

EXPORT int cudaGraphHostNodeSetParams(void *node, const void *given) { CALL(cuGraphHostNodeSetParams(node, given)); }

EXPORT int cudaGraphExecHostNodeSetParams(void *exec, void *node, const void *given) { CALL(cuGraphExecHostNodeSetParams(exec, node, given)); }

EXPORT int cudaGraphAddChildGraphNode(void **made, void *graph, void *const *nodes, size_t count, void *child) {
    CALL(cuGraphAddChildGraphNode(made, graph, nodes, count, child));
}

EXPORT int cudaGraphChildGraphNodeGetGraph(void *node, void **graph) { CALL(cuGraphChildGraphNodeGetGraph(node, graph)); }

EXPORT int cudaGraphExecChildGraphNodeSetParams(void *exec, void *node, void *child) { CALL(cuGraphExecChildGraphNodeSetParams(exec, node, child)); }

EXPORT int cudaGraphAddEmptyNode(void **made, void *graph, void *const *nodes, size_t count) { CALL(cuGraphAddEmptyNode(made, graph, nodes, count)); }

EXPORT int cudaGraphAddEventRecordNode(void **made, void *graph, void *const *nodes, size_t count, void *event) {
    CALL(cuGraphAddEventRecordNode(made, graph, nodes, count, event));
}

EXPORT int cudaGraphAddEventWaitNode(void **made, void *graph, void *const *nodes, size_t count, void *event) {
    CALL(cuGraphAddEventWaitNode(made, graph, nodes, count, event));
}

EXPORT int cudaGraphEventRecordNodeGetEvent(void *node, void **event) { CALL(cuGraphEventRecordNodeGetEvent(node, event)); }

EXPORT int cudaGraphEventWaitNodeGetEvent(void *node, void **event) { CALL(cuGraphEventWaitNodeGetEvent(node, event)); }

EXPORT int cudaGraphEventRecordNodeSetEvent(void *node, void *event) { CALL(cuGraphEventRecordNodeSetEvent(node, event)); }

EXPORT int cudaGraphEventWaitNodeSetEvent(void *node, void *event) { CALL(cuGraphEventWaitNodeSetEvent(node, event)); }

EXPORT int cudaGraphExecEventRecordNodeSetEvent(void *exec, void *node, void *event) { CALL(cuGraphExecEventRecordNodeSetEvent(exec, node, event)); }

EXPORT int cudaGraphExecEventWaitNodeSetEvent(void *exec, void *node, void *event) { CALL(cuGraphExecEventWaitNodeSetEvent(exec, node, event)); }

EXPORT int cudaGraphAddMemAllocNode(void **made, void *graph, void *const *nodes, size_t count, void *given) {
    CALL(cuGraphAddMemAllocNode(made, graph, nodes, count, given));
}

EXPORT int cudaGraphInstantiateWithParams(void **exec, void *graph, void *given) { CALL(cuGraphInstantiateWithParams(exec, graph, given)); }
PER_THREAD(cudaGraphInstantiateWithParams, _ptsz);

EXPORT int cudaGraphMemAllocNodeGetParams(void *node, void *shown) { CALL(cuGraphMemAllocNodeGetParams(node, shown)); }

EXPORT int cudaGraphMemFreeNodeGetParams(void *node, void *shown) { CALL(cuGraphMemFreeNodeGetParams(node, shown)); }

EXPORT int cudaGraphExecGetFlags(void *exec, uint64_t *flags) { CALL(cuGraphExecGetFlags(exec, flags)); }

EXPORT int cudaGraphExecDestroy(void *exec) { CALL(cuGraphExecDestroy(exec)); }

EXPORT int cudaGraphLaunch(void *exec, void *stream) { CALL(cuGraphLaunch(exec, stream)); }
PER_THREAD(cudaGraphLaunch, _ptsz);

EXPORT int cudaGraphUpload(void *exec, void *stream) { CALL(cuGraphUpload(exec, stream)); }
PER_THREAD(cudaGraphUpload, _ptsz);

EXPORT int cudaGraphNodeSetEnabled(void *exec, void *node, unsigned enabled) { CALL(cuGraphNodeSetEnabled(exec, node, enabled)); }

EXPORT int cudaGraphNodeGetEnabled(void *exec, void *node, unsigned *enabled) { CALL(cuGraphNodeGetEnabled(exec, node, enabled)); }

EXPORT int cudaGraphKernelNodeGetAttribute(void *node, int attribute, void *value) { CALL(cuGraphKernelNodeGetAttribute(node, attribute, value)); }

EXPORT int cudaGraphKernelNodeSetAttribute(void *node, int attribute, const void *value) {
    CALL(cuGraphKernelNodeSetAttribute(node, attribute, value));
}

EXPORT int cudaGraphKernelNodeCopyAttributes(void *to, void *from) { CALL(cuGraphKernelNodeCopyAttributes(to, from)); }

EXPORT int cudaDeviceGetGraphMemAttribute(int device, int attribute, void *value) { CALL(cuDeviceGetGraphMemAttribute(device, attribute, value)); }

EXPORT int cudaDeviceSetGraphMemAttribute(int device, int attribute, const void *value) {
    CALL(cuDeviceSetGraphMemAttribute(device, attribute, value));
}

EXPORT int cudaDeviceGraphMemTrim(int device) { CALL(cuDeviceGraphMemTrim(device)); }

EXPORT int cudaUserObjectCreate(void **object, void *pointer, void (*destroy)(void *), unsigned count, unsigned flags) {
    CALL(cuUserObjectCreate(object, pointer, destroy, count, flags));
}

EXPORT int cudaUserObjectRetain(void *object, unsigned count) { CALL(cuUserObjectRetain(object, count)); }

EXPORT int cudaUserObjectRelease(void *object, unsigned count) { CALL(cuUserObjectRelease(object, count)); }

EXPORT int cudaGraphRetainUserObject(void *graph, void *object, unsigned count, unsigned flags) {
    CALL(cuGraphRetainUserObject(graph, object, count, flags));
}

EXPORT int cudaGraphReleaseUserObject(void *graph, void *object, unsigned count) { CALL(cuGraphReleaseUserObject(graph, object, count)); }

/* ---- edges with data: CUDA 12 has both forms, CUDA 13 this one under the old name ---- */

#if CUDART == 12
#define EDGES(name) name##_v2
EXPORT int cudaGraphAddDependencies(void *graph, void *const *from, void *const *to, size_t count) { CALL(cuGraphAddDependencies_v2(graph, from, to, NULL, count)); }

EXPORT int cudaGraphRemoveDependencies(void *graph, void *const *from, void *const *to, size_t count) { CALL(cuGraphRemoveDependencies_v2(graph, from, to, NULL, count)); }

EXPORT int cudaGraphGetEdges(void *graph, void **from, void **to, size_t *count) { CALL(cuGraphGetEdges_v2(graph, from, to, NULL, count)); }

EXPORT int cudaGraphNodeGetDependencies(void *node, void **nodes, size_t *count) { CALL(cuGraphNodeGetDependencies_v2(node, nodes, NULL, count)); }

EXPORT int cudaGraphNodeGetDependentNodes(void *node, void **nodes, size_t *count) { CALL(cuGraphNodeGetDependentNodes_v2(node, nodes, NULL, count)); }

EXPORT int cudaStreamUpdateCaptureDependencies(void *stream, void **nodes, size_t count, unsigned flags) {
    CALL(cuStreamUpdateCaptureDependencies_v2(stream, nodes, NULL, count, flags));
}
PER_THREAD(cudaStreamUpdateCaptureDependencies, _ptsz);
#else
#define EDGES(name) name
#endif

EXPORT int EDGES(cudaGraphAddDependencies)(void *graph, void *const *from, void *const *to, const void *data, size_t count) {
    CALL(cuGraphAddDependencies_v2(graph, from, to, data, count));
}

EXPORT int EDGES(cudaGraphRemoveDependencies)(void *graph, void *const *from, void *const *to, const void *data, size_t count) {
    CALL(cuGraphRemoveDependencies_v2(graph, from, to, data, count));
}

EXPORT int EDGES(cudaGraphGetEdges)(void *graph, void **from, void **to, void *data, size_t *count) {
    CALL(cuGraphGetEdges_v2(graph, from, to, data, count));
}

EXPORT int EDGES(cudaGraphNodeGetDependencies)(void *node, void **nodes, void *data, size_t *count) {
    CALL(cuGraphNodeGetDependencies_v2(node, nodes, data, count));
}

EXPORT int EDGES(cudaGraphNodeGetDependentNodes)(void *node, void **nodes, void *data, size_t *count) {
    CALL(cuGraphNodeGetDependentNodes_v2(node, nodes, data, count));
}

EXPORT int EDGES(cudaStreamUpdateCaptureDependencies)(void *stream, void **nodes, const void *data, size_t count, unsigned flags) {
    CALL(cuStreamUpdateCaptureDependencies_v2(stream, nodes, data, count, flags));
}
#if CUDART == 12
PER_THREAD(cudaStreamUpdateCaptureDependencies_v2, _ptsz);
#else
PER_THREAD(cudaStreamUpdateCaptureDependencies, _ptsz);
#endif

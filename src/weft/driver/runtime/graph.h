/* The part of the driver's API for graphs, and what copies of the runtime become in it. */
#ifndef WEFT_RUNTIME_GRAPH_H
#define WEFT_RUNTIME_GRAPH_H

#include "runtime.h"

/* ---- copies in the driver's layout (copy.c) ---- */

struct side {
    size_t x, y, z, lod;
    int type;
    const void *host;
    uint64_t device;
    void *array, *reserved;
    size_t pitch, height;
};

struct box {
    struct side from, to;
    size_t width, height, depth;
};

struct copy_3d {
    void *from_array;
    size_t from_x, from_y, from_z;
    struct pitched from;
    void *to_array;
    size_t to_x, to_y, to_z;
    struct pitched to;
    struct extent extent;
    int direction;
};

int box_of(struct box *box, const struct copy_3d *given);
/* A box of one row: a plain copy. */
int row_of(struct box *box, void *to, const void *from, size_t bytes, int direction);
/* Finds the address of bytes of a variable. */
int symbol_range(const void *symbol, size_t bytes, size_t offset, void **pointer);

/* ---- the driver ---- */

int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamBeginCaptureToGraph(void *stream, void *graph, void *const *nodes, const void *data, size_t count, int mode);
int cuStreamEndCapture(void *stream, void **graph);
int cuStreamUpdateCaptureDependencies_v2(void *stream, void **nodes, const void *data, size_t count, unsigned flags);
int cuGraphCreate(void **graph, unsigned flags);
int cuGraphDestroy(void *graph);
int cuGraphClone(void **copy, void *graph);
int cuGraphNodeFindInClone(void **found, void *node, void *copy);
int cuGraphDestroyNode(void *node);
int cuGraphAddDependencies_v2(void *graph, void *const *from, void *const *to, const void *data, size_t count);
int cuGraphRemoveDependencies_v2(void *graph, void *const *from, void *const *to, const void *data, size_t count);
int cuGraphGetNodes(void *graph, void **nodes, size_t *count);
int cuGraphGetRootNodes(void *graph, void **nodes, size_t *count);
int cuGraphGetEdges_v2(void *graph, void **from, void **to, void *data, size_t *count);
int cuGraphNodeGetDependencies_v2(void *node, void **nodes, void *data, size_t *count);
int cuGraphNodeGetDependentNodes_v2(void *node, void **nodes, void *data, size_t *count);
int cuGraphNodeGetType(void *node, int *type);
int cuGraphDebugDotPrint(void *graph, const char *path, unsigned flags);
int cuGraphAddNode_v2(void **made, void *graph, void *const *nodes, const void *data, size_t count, void *given);
int cuGraphConditionalHandleCreate(uint64_t *made, void *graph, void *context, unsigned first, unsigned flags);
int cuGraphAddKernelNode(void **made, void *graph, void *const *nodes, size_t count, const void *given);
int cuGraphKernelNodeGetParams(void *node, void *shown);
int cuGraphKernelNodeSetParams(void *node, const void *given);
int cuGraphExecKernelNodeSetParams(void *exec, void *node, const void *given);
int cuGraphAddMemcpyNode(void **made, void *graph, void *const *nodes, size_t count, const void *given, void *context);
int cuGraphMemcpyNodeSetParams(void *node, const void *given);
int cuGraphExecMemcpyNodeSetParams(void *exec, void *node, const void *given, void *context);
int cuGraphAddMemsetNode(void **made, void *graph, void *const *nodes, size_t count, const void *given, void *context);
int cuGraphMemsetNodeGetParams(void *node, void *shown);
int cuGraphMemsetNodeSetParams(void *node, const void *given);
int cuGraphExecMemsetNodeSetParams(void *exec, void *node, const void *given, void *context);
int cuGraphAddHostNode(void **made, void *graph, void *const *nodes, size_t count, const void *given);
int cuGraphHostNodeGetParams(void *node, void *shown);
int cuGraphHostNodeSetParams(void *node, const void *given);
int cuGraphExecHostNodeSetParams(void *exec, void *node, const void *given);
int cuGraphAddChildGraphNode(void **made, void *graph, void *const *nodes, size_t count, void *child);
int cuGraphChildGraphNodeGetGraph(void *node, void **graph);
int cuGraphExecChildGraphNodeSetParams(void *exec, void *node, void *child);
int cuGraphAddEmptyNode(void **made, void *graph, void *const *nodes, size_t count);
int cuGraphAddEventRecordNode(void **made, void *graph, void *const *nodes, size_t count, void *event);
int cuGraphAddEventWaitNode(void **made, void *graph, void *const *nodes, size_t count, void *event);
int cuGraphEventRecordNodeGetEvent(void *node, void **event);
int cuGraphEventWaitNodeGetEvent(void *node, void **event);
int cuGraphEventRecordNodeSetEvent(void *node, void *event);
int cuGraphEventWaitNodeSetEvent(void *node, void *event);
int cuGraphExecEventRecordNodeSetEvent(void *exec, void *node, void *event);
int cuGraphExecEventWaitNodeSetEvent(void *exec, void *node, void *event);
int cuGraphAddMemAllocNode(void **made, void *graph, void *const *nodes, size_t count, void *given);
int cuGraphMemAllocNodeGetParams(void *node, void *shown);
int cuGraphMemFreeNodeGetParams(void *node, void *shown);
int cuGraphAddMemFreeNode(void **made, void *graph, void *const *nodes, size_t count, uint64_t address);
int cuGraphInstantiateWithFlags(void **exec, void *graph, uint64_t flags);
int cuGraphInstantiateWithParams(void **exec, void *graph, void *given);
int cuGraphExecGetFlags(void *exec, uint64_t *flags);
int cuGraphExecDestroy(void *exec);
int cuGraphExecUpdate_v2(void *exec, void *graph, void *found);
int cuGraphLaunch(void *exec, void *stream);
int cuGraphUpload(void *exec, void *stream);
int cuGraphNodeSetEnabled(void *exec, void *node, unsigned enabled);
int cuGraphNodeGetEnabled(void *exec, void *node, unsigned *enabled);
int cuGraphKernelNodeGetAttribute(void *node, int attribute, void *value);
int cuGraphKernelNodeSetAttribute(void *node, int attribute, const void *value);
int cuGraphKernelNodeCopyAttributes(void *to, void *from);
int cuDeviceGetGraphMemAttribute(int device, int attribute, void *value);
int cuDeviceSetGraphMemAttribute(int device, int attribute, const void *value);
int cuDeviceGraphMemTrim(int device);
int cuUserObjectCreate(void **object, void *pointer, void (*destroy)(void *), unsigned count, unsigned flags);
int cuUserObjectRetain(void *object, unsigned count);
int cuUserObjectRelease(void *object, unsigned count);
int cuGraphRetainUserObject(void *graph, void *object, unsigned count, unsigned flags);
int cuGraphReleaseUserObject(void *graph, void *object, unsigned count);

#endif

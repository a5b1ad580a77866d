/* Graphs and stream capture: built node by node and by capture, launched, changed; calls that a capture forbids. Every
 * expected code is the documented one. Built with sanitisers. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *handle;
struct kernel_node {
    handle function;
    unsigned grid[3], block[3], shared;
    void **parameters, **extra;
    handle kernel, context;
};
struct memset_node {
    uint64_t to;
    size_t pitch;
    unsigned value, element;
    size_t width, height;
};
struct host_node {
    void (*function)(void *);
    void *data;
};
struct update_result {
    int result;
    handle node, from;
};
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(handle *, int);
int cuCtxSetCurrent(handle);
int cuCtxSynchronize(void);
int cuModuleLoadData(handle *, const void *);
int cuModuleGetFunction(handle *, handle, const char *);
int cuModuleUnload(handle);
int cuLaunchKernel(handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **);
int cuLaunchHostFunc(handle, void (*)(void *), void *);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemAllocAsync(uint64_t *, size_t, handle);
int cuMemFreeAsync(uint64_t, handle);
int cuMemFree_v2(uint64_t);
int cuMemcpyHtoD_v2(uint64_t, const void *, size_t);
int cuMemcpyDtoH_v2(void *, uint64_t, size_t);
int cuMemcpyDtoHAsync_v2(void *, uint64_t, size_t, handle);
int cuMemcpyDtoDAsync_v2(uint64_t, uint64_t, size_t, handle);
int cuMemsetD32Async(uint64_t, unsigned, size_t, handle);
int cuStreamCreate(handle *, unsigned);
int cuStreamDestroy_v2(handle);
int cuStreamSynchronize(handle);
int cuStreamQuery(handle);
int cuStreamWaitEvent(handle, handle, unsigned);
int cuStreamBeginCapture_v2(handle, int);
int cuStreamEndCapture(handle, handle *);
int cuStreamIsCapturing(handle, int *);
int cuStreamGetCaptureInfo_v3(handle, int *, uint64_t *, handle *, handle **, void **, size_t *);
int cuStreamUpdateCaptureDependencies_v2(handle, handle *, const void *, size_t, unsigned);
int cuThreadExchangeStreamCaptureMode(int *);
int cuEventCreate(handle *, unsigned);
int cuEventRecord(handle, handle);
int cuEventRecordWithFlags(handle, handle, unsigned);
int cuEventQuery(handle);
int cuEventElapsedTime(float *, handle, handle);
int cuEventDestroy_v2(handle);
int cuGraphCreate(handle *, unsigned);
int cuGraphDestroy(handle);
int cuGraphClone(handle *, handle);
int cuGraphNodeFindInClone(handle *, handle, handle);
int cuGraphAddKernelNode_v2(handle *, handle, handle *, size_t, struct kernel_node *);
int cuGraphKernelNodeGetParams_v2(handle, struct kernel_node *);
int cuGraphKernelNodeSetParams_v2(handle, struct kernel_node *);
int cuGraphAddMemsetNode(handle *, handle, handle *, size_t, struct memset_node *, handle);
int cuGraphAddHostNode(handle *, handle, handle *, size_t, struct host_node *);
int cuGraphAddEmptyNode(handle *, handle, handle *, size_t);
int cuGraphAddChildGraphNode(handle *, handle, handle *, size_t, handle);
int cuGraphChildGraphNodeGetGraph(handle, handle *);
int cuGraphAddDependencies_v2(handle, handle *, handle *, void *, size_t);
int cuGraphRemoveDependencies_v2(handle, handle *, handle *, void *, size_t);
int cuGraphGetNodes(handle, handle *, size_t *);
int cuGraphGetRootNodes(handle, handle *, size_t *);
int cuGraphGetEdges_v2(handle, handle *, handle *, void *, size_t *);
int cuGraphNodeGetType(handle, int *);
int cuGraphNodeGetDependencies_v2(handle, handle *, void *, size_t *);
int cuGraphDestroyNode(handle);
int cuDeviceGetGraphMemAttribute(int, int, uint64_t *);
int cuDeviceGraphMemTrim(int);
int cuGraphInstantiateWithFlags(handle *, handle, uint64_t);
int cuGraphLaunch(handle, handle);
int cuGraphUpload(handle, handle);
int cuGraphExecDestroy(handle);
int cuGraphExecKernelNodeSetParams_v2(handle, handle, struct kernel_node *);
int cuGraphExecMemsetNodeSetParams(handle, handle, struct memset_node *, handle);
int cuGraphExecUpdate_v2(handle, handle, struct update_result *);
int cuGraphNodeSetEnabled(handle, handle, unsigned);
int cuUserObjectCreate(handle *, void *, void (*)(void *), unsigned, unsigned);
int cuGraphRetainUserObject(handle, handle, unsigned, unsigned);

#define EXPECT(code, call)                                                                                           \
    do {                                                                                                             \
        int got_ = (call);                                                                                           \
        if (got_ != (code)) {                                                                                        \
            fprintf(stderr, "line %d: %s is %d, not %d\n", __LINE__, #call, got_, (code));                           \
            exit(10);                                                                                                \
        }                                                                                                            \
    } while (0)
#define HOLDS(what) EXPECT(1, (what) != 0)
enum { UNSUPPORTED = 900, INVALIDATED, MERGE, UNMATCHED, UNJOINED, ISOLATION, IMPLICIT, CAPTURED, WRONG_THREAD, UPDATE_FAILED = 910 };

/* x[0] = x[0] * 2 + n: the order of launches shows in the result */
static const char ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                          ".visible .entry step(.param .u64 x, .param .u32 n)\n{\n"
                          ".reg .b64 %rd<2>;\n.reg .b32 %r<4>;\n"
                          "ld.param.u64 %rd1, [x];\nld.param.u32 %r1, [n];\n"
                          "ld.global.u32 %r2, [%rd1];\nmad.lo.u32 %r3, %r2, 2, %r1;\nst.global.u32 [%rd1], %r3;\nret;\n}\n";
static handle context, module, step;
static uint64_t x;

static unsigned value(void) {
    unsigned read = 0;
    EXPECT(0, cuMemcpyDtoH_v2(&read, x, 4));
    return read;
}

static void set(unsigned to) { EXPECT(0, cuMemcpyHtoD_v2(x, &to, 4)); }

static void launch(handle stream, unsigned n, int code) {
    void *arguments[] = {&x, &n};
    EXPECT(code, cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
    n = 12345; /* arguments are copied when the launch is captured */
}

static void count(void *data) { ++*(int *)data; }
static void read_back(void *data) { *(unsigned *)data += 100; }

static struct kernel_node kernel_node(unsigned *n) {
    static void *arguments[2];
    arguments[0] = &x;
    arguments[1] = n;
    return (struct kernel_node){.function = step, .grid = {1, 1, 1}, .block = {1, 1, 1}, .parameters = arguments};
}

static void built_by_nodes(handle stream) {
    handle graph, first, second, third, host, exec, copy, found, list[8] = {0}, from[8], to[8];
    unsigned n = 1, seen = 0;
    struct kernel_node kernel = kernel_node(&n);
    EXPECT(1, cuGraphCreate(&graph, 1));
    EXPECT(0, cuGraphCreate(&graph, 0));
    EXPECT(0, cuGraphAddKernelNode_v2(&first, graph, NULL, 0, &kernel)); /* 2x + 1 */
    n = 10;
    EXPECT(0, cuGraphAddKernelNode_v2(&second, graph, NULL, 0, &kernel)); /* 2x + 10 */
    struct memset_node fill = {x, 0, 3, 4, 1, 1};
    EXPECT(0, cuGraphAddMemsetNode(&third, graph, NULL, 0, &fill, context)); /* added last, runs first */
    handle before[] = {third, first}, after[] = {first, second};
    EXPECT(0, cuGraphAddDependencies_v2(graph, before, after, NULL, 2));
    EXPECT(1, cuGraphAddDependencies_v2(graph, before, after, NULL, 1)); /* it is there already */
    struct host_node call = {read_back, &seen};
    EXPECT(0, cuGraphAddHostNode(&host, graph, &second, 1, &call));
    size_t number = 8;
    EXPECT(0, cuGraphGetNodes(graph, NULL, &number));
    HOLDS(number == 4);
    number = 8;
    EXPECT(0, cuGraphGetRootNodes(graph, list, &number));
    HOLDS(number == 1 && list[0] == third && !list[1]);
    number = 8;
    EXPECT(0, cuGraphGetEdges_v2(graph, from, to, NULL, &number));
    HOLDS(number == 3);
    number = 8;
    EXPECT(0, cuGraphNodeGetDependencies_v2(second, list, NULL, &number));
    HOLDS(number == 1 && list[0] == first);
    int type = -1;
    EXPECT(0, cuGraphNodeGetType(third, &type));
    HOLDS(type == 2);
    struct kernel_node shown = {0};
    EXPECT(0, cuGraphKernelNodeGetParams_v2(second, &shown));
    HOLDS(shown.function == step && *(unsigned *)shown.parameters[1] == 10 && *(uint64_t *)shown.parameters[0] == x);

    EXPECT(0, cuGraphInstantiateWithFlags(&exec, graph, 0));
    EXPECT(0, cuGraphUpload(exec, stream));
    set(99);
    for (int i = 0; i < 2; i++) EXPECT(0, cuGraphLaunch(exec, stream)); /* ((3 * 2) + 1) * 2 + 10, both times */
    HOLDS(value() == 24 && seen == 200);
    n = 20;
    EXPECT(0, cuGraphExecKernelNodeSetParams_v2(exec, second, &kernel));
    EXPECT(0, cuGraphLaunch(exec, stream));
    HOLDS(value() == 34);
    EXPECT(0, cuGraphNodeSetEnabled(exec, first, 0));
    fill.value = 5;
    EXPECT(0, cuGraphExecMemsetNodeSetParams(exec, third, &fill, context));
    EXPECT(0, cuGraphLaunch(exec, stream));
    HOLDS(value() == 30); /* 5 * 2 + 20 */
    EXPECT(1, cuGraphNodeSetEnabled(exec, host, 0));

    EXPECT(0, cuGraphClone(&copy, graph));
    EXPECT(0, cuGraphNodeFindInClone(&found, second, copy));
    HOLDS(found != second);
    n = 7;
    EXPECT(0, cuGraphKernelNodeSetParams_v2(found, &kernel));
    struct update_result result;
    EXPECT(0, cuGraphExecUpdate_v2(exec, copy, &result));
    HOLDS(result.result == 0);
    EXPECT(0, cuGraphNodeSetEnabled(exec, first, 1));
    EXPECT(0, cuGraphLaunch(exec, stream));
    HOLDS(value() == 21); /* (3 * 2 + 1) * 2 + 7 */
    EXPECT(0, cuGraphAddEmptyNode(&found, copy, NULL, 0));
    EXPECT(UPDATE_FAILED, cuGraphExecUpdate_v2(exec, copy, &result));
    HOLDS(result.result == 2); /* the topology changed */
    EXPECT(0, cuGraphDestroy(copy));

    EXPECT(0, cuGraphAddDependencies_v2(graph, &host, &third, NULL, 1)); /* a circle */
    handle circle;
    EXPECT(1, cuGraphInstantiateWithFlags(&circle, graph, 0));
    EXPECT(0, cuGraphRemoveDependencies_v2(graph, &host, &third, NULL, 1));
    EXPECT(1, cuGraphRemoveDependencies_v2(graph, &host, &third, NULL, 1));
    EXPECT(0, cuGraphDestroyNode(first));
    EXPECT(1, cuGraphDestroyNode(first));
    EXPECT(0, cuGraphDestroy(graph));
    EXPECT(0, cuGraphLaunch(exec, stream)); /* it does not need the graph */
    EXPECT(0, cuGraphExecDestroy(exec));
    EXPECT(1, cuGraphLaunch(exec, stream));
}

static void children_and_objects(handle stream) {
    handle parent, child, node, exec, inner, inside, object;
    int destroyed = 0;
    unsigned n = 4;
    struct kernel_node kernel = kernel_node(&n);
    EXPECT(0, cuGraphCreate(&parent, 0));
    EXPECT(0, cuGraphCreate(&child, 0));
    EXPECT(0, cuGraphAddKernelNode_v2(&node, child, NULL, 0, &kernel));
    EXPECT(0, cuUserObjectCreate(&object, &destroyed, count, 1, 1));
    EXPECT(0, cuGraphRetainUserObject(child, object, 1, 1));
    EXPECT(0, cuGraphAddChildGraphNode(&node, parent, NULL, 0, child));
    EXPECT(0, cuGraphDestroy(child)); /* the node has a copy */
    HOLDS(!destroyed);
    EXPECT(0, cuGraphChildGraphNodeGetGraph(node, &inner));
    EXPECT(1, cuGraphDestroy(inner));
    size_t one = 1;
    EXPECT(0, cuGraphGetNodes(inner, &inside, &one));
    EXPECT(0, cuGraphInstantiateWithFlags(&exec, parent, 0));
    EXPECT(0, cuGraphDestroyNode(node));
    set(1);
    EXPECT(0, cuGraphLaunch(exec, stream));
    HOLDS(value() == 6 && !destroyed);
    EXPECT(1, cuGraphExecKernelNodeSetParams_v2(exec, inside, &kernel)); /* the node is gone from the graph */
    EXPECT(0, cuGraphDestroy(parent));
    HOLDS(!destroyed);
    EXPECT(0, cuGraphExecDestroy(exec));
    HOLDS(destroyed == 1);
}

static void captured(handle stream, handle other) {
    handle graph, exec, fork, join, timed;
    int status = 9, calls = 0;
    size_t number = 0;
    uint64_t id = 0;
    handle *nodes = NULL;
    void *data = NULL;
    unsigned read = 0;
    EXPECT(0, cuEventCreate(&fork, 0));
    EXPECT(0, cuEventCreate(&join, 0));
    EXPECT(0, cuEventCreate(&timed, 0));
    set(1);
    EXPECT(0, cuStreamBeginCapture_v2(stream, 0));
    launch(stream, 1, 0);
    HOLDS(cuStreamIsCapturing(stream, &status) == 0 && status == 1);
    HOLDS(cuStreamIsCapturing(other, &status) == 0 && status == 0);
    EXPECT(0, cuEventRecord(fork, stream));
    EXPECT(0, cuStreamWaitEvent(other, fork, 0)); /* joins the capture */
    HOLDS(cuStreamIsCapturing(other, &status) == 0 && status == 1);
    launch(other, 2, 0);
    EXPECT(0, cuLaunchHostFunc(other, count, &calls));
    EXPECT(0, cuEventRecord(join, other));
    EXPECT(0, cuStreamWaitEvent(stream, join, 0));
    launch(stream, 3, 0);
    EXPECT(0, cuMemcpyDtoHAsync_v2(&read, x, 4, stream));
    EXPECT(0, cuEventRecordWithFlags(timed, stream, 1));
    EXPECT(0, cuStreamGetCaptureInfo_v3(stream, &status, &id, &graph, &nodes, &data, &number));
    HOLDS(status == 1 && id && graph && number == 1);
    EXPECT(0, cuStreamEndCapture(stream, &graph));
    HOLDS(!read && !calls);
    EXPECT(0, cuGraphGetNodes(graph, NULL, &number));
    HOLDS(number == 6);
    EXPECT(0, cuGraphInstantiateWithFlags(&exec, graph, 0));
    EXPECT(0, cuGraphDestroy(graph));
    HOLDS(value() == 1);
    EXPECT(0, cuGraphLaunch(exec, stream)); /* ((1 * 2 + 1) * 2 + 2) * 2 + 3 */
    HOLDS(value() == 19 && read == 19 && calls == 1);
    EXPECT(0, cuEventQuery(timed));

    EXPECT(0, cuStreamBeginCapture_v2(stream, 1)); /* the launch of a graph becomes a child */
    EXPECT(0, cuGraphLaunch(exec, stream));
    EXPECT(0, cuGraphExecDestroy(exec));
    EXPECT(0, cuStreamEndCapture(stream, &graph));
    EXPECT(0, cuGraphInstantiateWithFlags(&exec, graph, 0));
    set(1);
    EXPECT(0, cuGraphLaunch(exec, stream));
    HOLDS(value() == 19);
    EXPECT(0, cuModuleUnload(module));
    EXPECT(400, cuGraphLaunch(exec, stream)); /* its kernels are gone */
    EXPECT(0, cuModuleLoadData(&module, ptx));
    EXPECT(0, cuModuleGetFunction(&step, module, "step"));
    EXPECT(400, cuGraphLaunch(exec, stream));
    EXPECT(0, cuGraphExecDestroy(exec));
    EXPECT(0, cuGraphDestroy(graph));
    EXPECT(0, cuEventDestroy_v2(fork));
    EXPECT(0, cuEventDestroy_v2(join));
    EXPECT(0, cuEventDestroy_v2(timed));
}

static void memory_of_a_graph(handle stream) {
    handle graph, exec, again, nodes[3];
    uint64_t address = 0, reserved = 0;
    size_t number = 3;
    unsigned read = 0;
    EXPECT(0, cuStreamBeginCapture_v2(stream, 0));
    EXPECT(0, cuMemAllocAsync(&address, 64, stream));
    HOLDS(address);
    EXPECT(0, cuMemsetD32Async(address, 77, 16, stream));
    EXPECT(0, cuMemcpyDtoDAsync_v2(x, address, 4, stream));
    EXPECT(0, cuStreamEndCapture(stream, &graph));
    EXPECT(0, cuGraphInstantiateWithFlags(&exec, graph, 0));
    EXPECT(801, cuGraphClone(&again, graph)); /* as documented */
    EXPECT(0, cuGraphGetNodes(graph, nodes, &number));
    HOLDS(number == 3);
    for (int i = 0; i < 3; i++) EXPECT(801, cuGraphDestroyNode(nodes[i])); /* as documented: none of such a graph */
    EXPECT(0, cuGraphLaunch(exec, stream));
    HOLDS(value() == 77);
    EXPECT(1, cuGraphLaunch(exec, stream)); /* its memory was not freed */
    EXPECT(0, cuMemcpyDtoH_v2(&read, address + 60, 4));
    HOLDS(read == 77);
    EXPECT(0, cuMemFreeAsync(address, stream));
    EXPECT(1, cuMemFree_v2(address));
    EXPECT(0, cuGraphLaunch(exec, stream));
    EXPECT(0, cuGraphExecDestroy(exec));
    EXPECT(0, cuGraphDestroy(graph));
    EXPECT(0, cuMemFree_v2(address)); /* it outlives the graph */
    EXPECT(1, cuMemFree_v2(address));
    EXPECT(0, cuDeviceGetGraphMemAttribute(0, 2, &reserved)); /* until it is trimmed */
    HOLDS(reserved == 64);
    EXPECT(0, cuDeviceGraphMemTrim(0));
    EXPECT(0, cuDeviceGetGraphMemAttribute(0, 2, &reserved));
    HOLDS(reserved == 0);
}

/* Begins a capture, makes a forbidden call, and checks that the capture is lost. */
#define FORBIDDEN(code, call)                                                                                        \
    do {                                                                                                             \
        handle lost_ = &lost_;                                                                                       \
        int status_ = 0;                                                                                             \
        EXPECT(0, cuStreamBeginCapture_v2(stream, 0));                                                               \
        launch(stream, 1, 0);                                                                                        \
        EXPECT(code, call);                                                                                          \
        HOLDS(cuStreamIsCapturing(stream, &status_) == 0 && status_ == 2);                                           \
        launch(stream, 1, INVALIDATED);                                                                              \
        EXPECT(INVALIDATED, cuStreamEndCapture(stream, &lost_));                                                     \
        HOLDS(lost_ == NULL);                                                                                        \
    } while (0)

static int wait_for_captured_event(handle stream) {
    handle event;
    EXPECT(0, cuEventCreate(&event, 0));
    EXPECT(0, cuEventRecord(event, stream));
    int mode = 2; /* relaxed: the query itself is allowed, the captured event is not */
    EXPECT(0, cuThreadExchangeStreamCaptureMode(&mode));
    int code = cuEventQuery(event);
    EXPECT(0, cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT(0, cuEventDestroy_v2(event));
    return code;
}

static int wait_for_event_of_before(handle stream, handle event) { return cuStreamWaitEvent(stream, event, 0); }

static void *end_elsewhere(void *stream) {
    handle graph;
    EXPECT(0, cuCtxSetCurrent(context));
    EXPECT(WRONG_THREAD, cuStreamEndCapture(stream, &graph));
    return NULL;
}

static void forbidden(handle stream, handle other) {
    handle event, graph;
    uint64_t address;
    unsigned number = 0;
    float ms;
    pthread_t thread;
    EXPECT(0, cuEventCreate(&event, 0));
    EXPECT(0, cuEventRecord(event, other));
    FORBIDDEN(UNSUPPORTED, cuStreamSynchronize(stream));
    FORBIDDEN(UNSUPPORTED, cuStreamQuery(stream));
    FORBIDDEN(UNSUPPORTED, cuCtxSynchronize());
    FORBIDDEN(UNSUPPORTED, cuMemAlloc_v2(&address, 16));
    FORBIDDEN(IMPLICIT, cuMemcpyDtoH_v2(&number, x, 4));
    FORBIDDEN(IMPLICIT, cuStreamSynchronize(NULL));
    FORBIDDEN(CAPTURED, wait_for_captured_event(stream));
    FORBIDDEN(ISOLATION, wait_for_event_of_before(stream, event));
    EXPECT(UNSUPPORTED, cuStreamBeginCapture_v2(NULL, 0)); /* the legacy stream */
    EXPECT(401, cuStreamEndCapture(stream, &graph));

    EXPECT(0, cuStreamBeginCapture_v2(stream, 0)); /* a branch that is not joined */
    EXPECT(0, cuEventRecord(event, stream));
    EXPECT(907, cuEventElapsedTime(&ms, event, event));
    EXPECT(INVALIDATED, cuStreamEndCapture(stream, &graph));
    EXPECT(0, cuStreamBeginCapture_v2(stream, 0));
    EXPECT(0, cuEventRecord(event, stream));
    EXPECT(0, cuStreamWaitEvent(other, event, 0));
    launch(other, 1, 0);
    EXPECT(UNJOINED, cuStreamEndCapture(stream, &graph));
    HOLDS(!graph);
    launch(other, 1, 0); /* it captures no more */

    EXPECT(0, cuStreamBeginCapture_v2(stream, 2)); /* relaxed: unsafe calls are allowed */
    EXPECT(0, cuStreamBeginCapture_v2(other, 2));
    EXPECT(0, cuMemAlloc_v2(&address, 16));
    EXPECT(0, cuEventRecord(event, stream));
    EXPECT(MERGE, cuStreamWaitEvent(other, event, 0));
    EXPECT(INVALIDATED, cuStreamEndCapture(other, &graph));
    EXPECT(INVALIDATED, cuStreamEndCapture(stream, &graph));
    EXPECT(0, cuMemFree_v2(address));

    EXPECT(0, cuStreamBeginCapture_v2(stream, 1));
    EXPECT(0, pthread_create(&thread, NULL, end_elsewhere, stream));
    EXPECT(0, pthread_join(thread, NULL));
    EXPECT(INVALIDATED, cuStreamEndCapture(stream, &graph));
    EXPECT(0, cuStreamBeginCapture_v2(stream, 0));
    EXPECT(0, cuEventRecord(event, stream));
    EXPECT(0, cuStreamWaitEvent(other, event, 0));
    EXPECT(UNMATCHED, cuStreamEndCapture(other, &graph));
    EXPECT(INVALIDATED, cuStreamEndCapture(stream, &graph));
    EXPECT(0, cuEventDestroy_v2(event));
}

int main(void) {
    handle stream, other;
    EXPECT(0, cuInit(0));
    EXPECT(0, cuDevicePrimaryCtxRetain(&context, 0));
    EXPECT(0, cuCtxSetCurrent(context));
    EXPECT(0, cuModuleLoadData(&module, ptx));
    EXPECT(0, cuModuleGetFunction(&step, module, "step"));
    EXPECT(0, cuMemAlloc_v2(&x, 4));
    EXPECT(0, cuStreamCreate(&stream, 0));
    EXPECT(0, cuStreamCreate(&other, 1));
    built_by_nodes(stream);
    children_and_objects(stream);
    captured(stream, other);
    memory_of_a_graph(stream);
    forbidden(stream, other);
    EXPECT(0, cuMemFree_v2(x));
    EXPECT(0, cuStreamBeginCapture_v2(stream, 0)); /* destroyed while it captures */
    EXPECT(0, cuStreamDestroy_v2(stream));
    EXPECT(0, cuStreamDestroy_v2(other));
    EXPECT(0, cuModuleUnload(module));
    puts("ok");
    return 0;
}

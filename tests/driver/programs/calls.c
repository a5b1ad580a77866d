/* Calls the driver in the ways that a program gets wrong, and checks every result. Built with sanitisers. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *handle;
int cuInit(unsigned);
int cuDeviceGetName(char *, int, int);
int cuDeviceGetAttribute(int *, int, int);
int cuDevicePrimaryCtxRetain(handle *, int);
int cuDevicePrimaryCtxReset_v2(int);
int cuCtxCreate_v2(handle *, unsigned, int);
int cuCtxCreate_v4(handle *, const void *, unsigned, int);
int cuCtxDestroy_v2(handle);
int cuCtxSetCurrent(handle);
int cuCtxGetCurrent(handle *);
int cuCtxPushCurrent_v2(handle);
int cuCtxPopCurrent_v2(handle *);
int cuCtxSynchronize(void);
int cuCtxGetLimit(size_t *, int);
int cuModuleLoadDataEx(handle *, const void *, unsigned, int *, void **);
int cuModuleLoad(handle *, const char *);
int cuModuleGetFunction(handle *, handle, const char *);
int cuModuleUnload(handle);
int cuLinkCreate_v2(unsigned, int *, void **, handle *);
int cuLinkAddData_v2(handle, int, void *, size_t, const char *, unsigned, int *, void **);
int cuLinkComplete(handle, void **, size_t *);
int cuLinkDestroy(handle);
int cuLaunchKernel(handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **);
int cuOccupancyMaxPotentialBlockSize(int *, int *, handle, size_t (*)(int), size_t, int);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemFree_v2(uint64_t);
int cuMemAllocManaged(uint64_t *, size_t, unsigned);
int cuMemAllocAsync(uint64_t *, size_t, handle);
int cuMemFreeAsync(uint64_t, handle);
int cuMemcpyHtoD_v2(uint64_t, const void *, size_t);
int cuMemcpyDtoH_v2(void *, uint64_t, size_t);
int cuMemcpyDtoD_v2(uint64_t, uint64_t, size_t);
int cuMemsetD16_v2(uint64_t, unsigned short, size_t);
int cuPointerGetAttributes(unsigned, int *, void **, uint64_t);
int cuStreamCreate(handle *, unsigned);
int cuStreamSynchronize(handle);
int cuStreamDestroy_v2(handle);
int cuLaunchHostFunc(handle, void (*)(void *), void *);
int cuEventCreate(handle *, unsigned);
int cuEventRecord(handle, handle);
int cuEventElapsedTime(float *, handle, handle);
int cuEventDestroy_v2(handle);
int cuGetErrorName(int, const char **);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);

#define EXPECT(code, call)                                                                                           \
    do {                                                                                                             \
        int got_ = (call);                                                                                           \
        if (got_ != (code)) {                                                                                        \
            fprintf(stderr, "line %d: %s is %d, not %d\n", __LINE__, #call, got_, (code));                           \
            exit(10);                                                                                                \
        }                                                                                                            \
    } while (0)
#define HOLDS(what) EXPECT(1, (what) != 0)

static const char ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                          ".visible .entry add(.param .u64 x, .param .u32 n)\n{\n"
                          ".reg .b64 %rd<2>;\n.reg .b32 %r<4>;\n"
                          "ld.param.u64 %rd1, [x];\nld.param.u32 %r1, [n];\n"
                          "ld.global.u32 %r2, [%rd1];\nadd.u32 %r3, %r2, %r1;\nst.global.u32 [%rd1], %r3;\nret;\n}\n";

static void count(void *data) { ++*(int *)data; }
static size_t no_shared(int threads) { return (size_t)threads * 0; }

static handle primary;

static void *in_a_thread(void *data) {
    handle current = &current;
    EXPECT(0, cuCtxGetCurrent(&current));
    HOLDS(current == NULL); /* a stack per thread */
    EXPECT(201, cuCtxSynchronize());
    EXPECT(0, cuCtxSetCurrent(primary));
    for (int round = 0; round < 200; round++) {
        uint64_t x = 0;
        EXPECT(0, cuMemAlloc_v2(&x, 64 + (size_t)round));
        EXPECT(0, cuMemsetD16_v2(x, 7, 32));
        EXPECT(0, cuMemFree_v2(x));
    }
    return data;
}

int main(void) {
    handle made, other, module, function, stream, start, end, link;
    uint64_t x = 0, y = 0;
    char name[8], log[64];
    int value, data[4] = {1, 2, 3, 4};

    EXPECT(3, cuCtxSynchronize());
    EXPECT(1, cuInit(1));
    EXPECT(0, cuInit(0));
    EXPECT(201, cuMemAlloc_v2(&x, 4));
    EXPECT(0, cuDeviceGetName(name, sizeof name, 0));
    HOLDS(strlen(name) == 7);
    EXPECT(101, cuDeviceGetName(name, sizeof name, 1));
    EXPECT(1, cuDeviceGetAttribute(&value, 0, 0));
    EXPECT(1, cuDeviceGetAttribute(&value, 100000, 0));

    EXPECT(0, cuDevicePrimaryCtxRetain(&primary, 0));
    EXPECT(201, cuCtxSetCurrent((handle)&value));
    EXPECT(201, cuCtxSetCurrent((char *)primary + 8));
    EXPECT(0, cuCtxSetCurrent(primary));
    struct { void *affinity; int affinities; void *graphics; } nothing = {0};
    EXPECT(0, cuCtxCreate_v4(&made, &nothing, 0, 0));
    EXPECT(0, cuCtxDestroy_v2(made));
    EXPECT(0, cuCtxCreate_v2(&made, 0, 0));
    EXPECT(0, cuCtxPopCurrent_v2(&other));
    HOLDS(other == made);
    EXPECT(0, cuCtxDestroy_v2(made));
    EXPECT(201, cuCtxPushCurrent_v2(made));
    EXPECT(0, cuCtxGetCurrent(&other));
    HOLDS(other == primary);
    size_t limit;
    EXPECT(1, cuCtxGetLimit(&limit, 99));

    int options[] = {5, 6};
    void *values[] = {log, (void *)sizeof log};
    memset(log, 'x', sizeof log);
    EXPECT(200, cuModuleLoadDataEx(&module, "this is no PTX", 2, options, values));
    HOLDS(strlen(log) > 10 && strlen(log) < sizeof log);
    EXPECT(200, cuModuleLoadDataEx(&module, "", 0, NULL, NULL));
    EXPECT(301, cuModuleLoad(&module, "no such file"));
    EXPECT(0, cuModuleLoadDataEx(&module, ptx, 2, options, values));
    EXPECT(500, cuModuleGetFunction(&function, module, "subtract"));
    EXPECT(400, cuModuleGetFunction(&function, primary, "add"));
    EXPECT(0, cuModuleGetFunction(&function, module, "add"));
    EXPECT(0, cuModuleGetFunction(&other, module, "add"));
    HOLDS(other == function);

    EXPECT(1, cuMemAlloc_v2(&x, 0));
    EXPECT(0, cuMemAlloc_v2(&x, 16));
    EXPECT(0, cuMemAlloc_v2(&y, 16));
    EXPECT(0, cuMemcpyHtoD_v2(x, data, 16));
    EXPECT(1, cuMemcpyHtoD_v2(x + 1, data, 16));
    EXPECT(1, cuMemcpyHtoD_v2(x - 1, data, 1));
    EXPECT(1, cuMemcpyDtoD_v2(y, x, ~(size_t)0));
    EXPECT(0, cuMemcpyDtoD_v2(y, x, 16));
    unsigned n = 41;
    void *parameters[] = {&x, &n};
    EXPECT(0, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    struct { uint64_t x; unsigned n; } buffer = {y, 7};
    size_t bytes = sizeof buffer;
    void *extra[] = {(void *)1, &buffer, (void *)2, &bytes, NULL};
    EXPECT(0, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    bytes = 8;
    EXPECT(1, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    EXPECT(1, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    EXPECT(1, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 1 << 20, NULL, parameters, NULL));
    EXPECT(400, cuLaunchKernel(module, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    EXPECT(0, cuMemcpyDtoH_v2(data, x, 16));
    HOLDS(data[0] == 42 && data[1] == 2);
    EXPECT(0, cuMemcpyDtoH_v2(data, y, 16));
    HOLDS(data[0] == 8);
    int grid, block;
    EXPECT(0, cuOccupancyMaxPotentialBlockSize(&grid, &block, function, no_shared, 0, 0));
    HOLDS(grid > 0 && block > 0 && block % 32 == 0);

    int which[] = {2, 8, 11, 12};
    int type;
    char managed;
    uint64_t begin, size;
    void *shown[] = {&type, &managed, &begin, &size};
    EXPECT(0, cuPointerGetAttributes(4, which, shown, x + 4));
    HOLDS(type == 2 && !managed && begin == x && size == 16);
    EXPECT(0, cuPointerGetAttributes(4, which, shown, (uint64_t)(uintptr_t)data));
    HOLDS(type == 0);

    EXPECT(0, cuStreamCreate(&stream, 1));
    EXPECT(0, cuEventCreate(&start, 0));
    EXPECT(0, cuEventCreate(&end, 2));
    float milliseconds;
    EXPECT(400, cuEventElapsedTime(&milliseconds, start, start));
    EXPECT(0, cuEventRecord(start, stream));
    EXPECT(0, cuEventElapsedTime(&milliseconds, start, start));
    EXPECT(0, cuEventRecord(end, stream));
    EXPECT(400, cuEventElapsedTime(&milliseconds, start, end)); /* the second has no time */
    int called = 0;
    EXPECT(0, cuLaunchHostFunc(stream, count, &called));
    HOLDS(called == 1);
    uint64_t pooled;
    EXPECT(0, cuMemAllocAsync(&pooled, 1000, stream));
    EXPECT(0, cuMemFreeAsync(pooled, stream));
    EXPECT(1, cuMemFreeAsync(pooled, stream));
    EXPECT(0, cuStreamDestroy_v2(stream));
    EXPECT(400, cuStreamSynchronize(stream));
    EXPECT(0, cuEventDestroy_v2(end));
    EXPECT(400, cuEventRecord(end, NULL));

    void *linked;
    size_t linked_bytes;
    EXPECT(0, cuLinkCreate_v2(0, NULL, NULL, &link));
    EXPECT(1, cuLinkComplete(link, &linked, &linked_bytes));
    EXPECT(0, cuLinkAddData_v2(link, 1, (void *)ptx, sizeof ptx, "a.ptx", 0, NULL, NULL));
    EXPECT(0, cuLinkComplete(link, &linked, &linked_bytes));
    HOLDS(linked_bytes == strlen(linked) + 1);
    EXPECT(0, cuLinkDestroy(link));
    EXPECT(400, cuLinkDestroy(link));

    pthread_t threads[4];
    for (int i = 0; i < 4; i++) EXPECT(0, pthread_create(&threads[i], NULL, in_a_thread, NULL));
    for (int i = 0; i < 4; i++) EXPECT(0, pthread_join(threads[i], NULL));

    uint64_t shared;
    EXPECT(0, cuMemAllocManaged(&shared, 10000, 1));
    memset((void *)(uintptr_t)shared, 1, 10000);
    const char *spelled;
    EXPECT(0, cuGetErrorName(700, &spelled));
    EXPECT(0, strcmp(spelled, "CUDA_ERROR_ILLEGAL_ADDRESS"));
    EXPECT(1, cuGetErrorName(12345, &spelled));

    EXPECT(0, cuModuleUnload(module));
    EXPECT(400, cuModuleUnload(module));
    EXPECT(400, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    EXPECT(0, cuModuleLoadDataEx(&module, ptx, 0, NULL, NULL));
    EXPECT(0, cuDevicePrimaryCtxReset_v2(0)); /* frees memory and modules */
    EXPECT(1, cuMemFree_v2(x));
    EXPECT(400, cuModuleUnload(module));
    puts("ok");
    return 0;
}

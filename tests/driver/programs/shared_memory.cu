// Managed, pinned and registered memory: one pointer for host and kernels; what the pointers are.
#include "check.cuh"

__managed__ int counter = 5;
__managed__ float table[2000] = {1.0f, 2.0f};

__global__ void touch(int *x, int n) {
    int i = threadIdx.x;
    if (i < n) x[i] += i;
    if (i == 0) {
        counter += 10;
        table[1999] = table[0] + table[1];
    }
}

static int type(const void *pointer) {
    cudaPointerAttributes found;
    OK(cudaPointerGetAttributes(&found, pointer));
    if (found.type == cudaMemoryTypeManaged || found.type == cudaMemoryTypeHost)
        REQUIRE(found.devicePointer == pointer && found.hostPointer == pointer && found.device == 0);
    return found.type;
}

static void registered() {
    const int n = 100;
    static int memory[n + 50];
    int *host = memory + 25, *seen, *device;
    OK(cudaHostRegister(host, n * sizeof(int), cudaHostRegisterDefault));
    REQUIRE(cudaHostRegister(host + 1, 4, 0) == cudaErrorHostMemoryAlreadyRegistered);
    OK(cudaHostGetDevicePointer(&seen, host, 0));
    cudaPointerAttributes found;
    OK(cudaPointerGetAttributes(&found, host + 2));
    REQUIRE(found.type == cudaMemoryTypeHost && found.hostPointer == host + 2 && found.devicePointer == seen + 2);
    for (int i = 0; i < n; i++) host[i] = 50;
    touch<<<1, 128>>>(seen, n);
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < n; i++) REQUIRE(host[i] == 50 + i);
    REQUIRE(host[-1] == 0 && host[n] == 0);
    OK(cudaMemset(seen, 0, 8));
    REQUIRE(host[0] == 0 && host[1] == 0 && host[2] == 52);
    OK(cudaMalloc(&device, n * sizeof(int)));
    OK(cudaMemcpy(device, host, n * sizeof(int), cudaMemcpyHostToDevice));
    OK(cudaMemcpy(host, seen + 2, sizeof(int), cudaMemcpyDefault));
    REQUIRE(host[0] == 52);
    OK(cudaHostUnregister(host));
    REQUIRE(cudaHostUnregister(host) == cudaErrorHostMemoryNotRegistered);
    OK(cudaFree(device));
}

int main() {
    const int n = 100;
    int *managed, *pinned, *mapped, *device, local;
    OK(cudaMallocManaged(&managed, n * sizeof(int)));
    OK(cudaMallocHost(&pinned, n * sizeof(int)));
    OK(cudaHostAlloc(&mapped, n * sizeof(int), cudaHostAllocMapped));
    OK(cudaMalloc(&device, n * sizeof(int)));
    REQUIRE(type(managed + 3) == cudaMemoryTypeManaged && type(pinned) == cudaMemoryTypeHost);
    REQUIRE(type(device) == cudaMemoryTypeDevice && type(&local) == cudaMemoryTypeUnregistered);
    REQUIRE(type(&counter) == cudaMemoryTypeManaged);
    counter += 1;
    for (int i = 0; i < n; i++) managed[i] = mapped[i] = pinned[i] = 1000;
    int *seen;
    OK(cudaHostGetDevicePointer(&seen, mapped, 0));
    touch<<<1, 128>>>(managed, n);
    touch<<<1, 128>>>(seen, n);
    OK(cudaMemPrefetchAsync(managed, n * sizeof(int), {cudaMemLocationTypeDevice, 0}, 0));
    OK(cudaMemAdvise(managed, n * sizeof(int), cudaMemAdviseSetReadMostly, {cudaMemLocationTypeDevice, 0}));
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < n; i++) REQUIRE(managed[i] == 1000 + i && mapped[i] == 1000 + i && pinned[i] == 1000);
    REQUIRE(counter == 26 && table[1999] == 3.0f);
    int back = 0;
    OK(cudaMemcpyFromSymbol(&back, counter, sizeof back));
    REQUIRE(back == 26);
    void *address;
    OK(cudaGetSymbolAddress(&address, counter));
    REQUIRE(address == &counter);
    registered();
    OK(cudaFreeHost(pinned));
    OK(cudaFreeHost(mapped));
    OK(cudaFree(managed));
    OK(cudaFree(device));
    std::puts("ok");
}

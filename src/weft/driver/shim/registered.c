/* Host memory that the program registers. Kernels reach it through a copy in device memory: the bytes are copied there
 * before each launch and back after it. Copies and memsets through the device's address use the host's bytes. */
#include <string.h>

#include "shim.h"

#define MOST 1024

static struct {
    uint64_t host, bytes;
    uint64_t device; /* 0 until the program asks for it: only then can a kernel have it */
} ranges[MOST];
static int count;

static int find(uint64_t host) {
    for (int i = 0; i < count; i++)
        if (host - ranges[i].host < ranges[i].bytes) return i;
    return -1;
}

uint64_t host_of(uint64_t address) {
    for (int i = 0; i < count; i++)
        if (ranges[i].device && address - ranges[i].device < ranges[i].bytes) return ranges[i].host + (address - ranges[i].device);
    return 0;
}

int is_registered(uint64_t host) { return find(host) >= 0; }

uint64_t device_of(uint64_t host) {
    int at = find(host);
    if (at < 0) return 0;
    if (!ranges[at].device) {
        struct answer answer = ask((struct request){.kind = ALLOCATE, .argument = {ranges[at].bytes, 256, PINNED_MEMORY}}, NULL, NULL);
        if (answer.code != SUCCESS || add_allocation(answer.value[0], ranges[at].bytes, REGISTERED_MEMORY, 0) != SUCCESS) return 0;
        ranges[at].device = answer.value[0];
    }
    return ranges[at].device + (host - ranges[at].host);
}

static uint8_t *copy_of(int at) { return memory_view + (ranges[at].device - devices[0].base); }

void before_launch(void) {
    for (int i = 0; i < count; i++)
        if (ranges[i].device) memcpy(copy_of(i), (void *)(uintptr_t)ranges[i].host, ranges[i].bytes);
}

void after_launch(void) {
    for (int i = 0; i < count; i++) {
        void *host = (void *)(uintptr_t)ranges[i].host;
        if (ranges[i].device && memcmp(host, copy_of(i), ranges[i].bytes) != 0) memcpy(host, copy_of(i), ranges[i].bytes);
    }
}

EXPORT int cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags) {
    CALL(CURRENT, pointer, bytes, flags);
    uint64_t host = (uint64_t)pointer;
    if (!pointer || !bytes || flags & ~15u || in_window(host)) RETURN(INVALID_VALUE);
    if (flags & 4u) RETURN(refuse("cuMemHostRegister", "CU_MEMHOSTREGISTER_IOMEMORY: memory of other devices is not supported"));
    for (int i = 0; i < count; i++)
        if (host < ranges[i].host + ranges[i].bytes && ranges[i].host < host + bytes) RETURN(HOST_MEMORY_ALREADY_REGISTERED);
    if (count == MOST) RETURN(OUT_OF_MEMORY);
    ranges[count].host = host;
    ranges[count].bytes = bytes;
    ranges[count++].device = 0;
    RETURN(SUCCESS);
}

EXPORT int cuMemHostUnregister(void *pointer) {
    CALL(CURRENT, pointer);
    int at = find((uint64_t)pointer);
    if (at < 0 || ranges[at].host != (uint64_t)pointer) RETURN(HOST_MEMORY_NOT_REGISTERED);
    uint64_t gone = ranges[at].device;
    ranges[at] = ranges[--count];
    RETURN(release_memory(gone, REGISTERED_MEMORY, REGISTERED_MEMORY));
}

void unregister_all(void) {
    while (count) release_memory(ranges[--count].device, REGISTERED_MEMORY, REGISTERED_MEMORY);
}

EXPORT int cuMemHostGetDevicePointer_v2(uint64_t *address, void *pointer, unsigned flags) {
    CALL(CURRENT, address, pointer, flags);
    if (!address || flags) RETURN(INVALID_VALUE);
    uint64_t host = (uint64_t)pointer;
    const struct allocation *found = find_allocation(host);
    if (!is_registered(host) && (!found || found->type != PINNED_MEMORY)) RETURN(INVALID_VALUE);
    *address = is_registered(host) ? device_of(host) : host;
    RETURN(*address ? SUCCESS : OUT_OF_MEMORY);
}

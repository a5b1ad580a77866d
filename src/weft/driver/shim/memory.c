/* Device, managed and pinned memory. The server places allocations in one file; the child maps it once as a
 * whole for copies (`memory_view`), and maps the pages of managed and pinned memory again at their device address, so
 * that host and kernels use the same pointer. A host access through another device pointer faults, as on a GPU. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "shim.h"

#define PAGE 4096u
#define PITCH 512u
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static struct allocation *table; /* by address */
static size_t count, room;
static uint64_t used_bytes[MOST_DEVICES], allocations_made;

static size_t position(uint64_t address) { /* of the first allocation behind `address` */
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int in_window(uint64_t address) { return address >= devices[0].base && address - devices[0].base < memory_bytes; }

static int window_of(uint64_t address) {
    int which = device_count - 1;
    while (which > 0 && address < devices[which].base) which--;
    return which;
}

const struct allocation *find_allocation(uint64_t address) {
    size_t behind = position(address);
    const struct allocation *before = behind ? &table[behind - 1] : NULL;
    return before && address - before->address < before->bytes ? before : NULL;
}

struct allocation *allocation_at(uint64_t address) {
    size_t behind = position(address);
    struct allocation *found = behind ? &table[behind - 1] : NULL;
    return found && found->address == address ? found : NULL;
}

void *view_of(uint64_t address, uint64_t bytes) {
    if (!in_window(address)) return (void *)(uintptr_t)address;
    const struct allocation *found = find_allocation(address);
    if (!found || bytes > found->address + found->bytes - address) return NULL;
    if (found->type == REGISTERED_MEMORY) return (void *)(uintptr_t)host_of(address);
    return memory_view + (address - devices[0].base);
}

int add_allocation(uint64_t address, uint64_t bytes, int type, unsigned flags) {
    if (find_allocation(address)) return SUCCESS; /* a variable that was asked for before */
    if (count == room) {
        size_t larger = room ? 2 * room : 256;
        struct allocation *moved = realloc(table, larger * sizeof *table);
        if (!moved) return OUT_OF_MEMORY;
        table = moved;
        room = larger;
    }
    size_t at = position(address);
    memmove(&table[at + 1], &table[at], (count - at) * sizeof *table);
    table[at] = (struct allocation){.address = address, .bytes = bytes, .id = ++allocations_made, .device = window_of(address), .type = type, .flags = flags};
    count++;
    used_bytes[window_of(address)] += bytes;
    return SUCCESS;
}

void set_pool(uint64_t address, struct handle *pool) { allocation_at(address)->pool = pool; }

static uint64_t pages(uint64_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

static int is_mapped(int type) { return type == MANAGED_MEMORY || type == PINNED_MEMORY || type == MANAGED_VARIABLE; }

int map_for_host(uint64_t address, uint64_t bytes) {
    void *wanted = (void *)(uintptr_t)address;
    void *got = mmap(wanted, pages(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, memory_file, (off_t)(address - devices[0].base));
    if (got == wanted) return 1;
    if (got != MAP_FAILED) munmap(got, pages(bytes)); /* an older kernel takes the flag as a hint and maps elsewhere */
    return 0;
}

void drop_allocation(uint64_t address) {
    struct allocation *gone = allocation_at(address);
    if (!gone) return;
    if (is_mapped(gone->type)) munmap((void *)(uintptr_t)address, pages(gone->bytes));
    used_bytes[window_of(address)] -= gone->bytes;
    memmove(gone, gone + 1, (size_t)(table + count - gone - 1) * sizeof *table);
    count--;
}

int allocate_memory(uint64_t *address, uint64_t bytes, int type, unsigned flags) {
    return allocate_on(device_number(), address, bytes, type, flags);
}

int allocate_on(int which, uint64_t *address, uint64_t bytes, int type, unsigned flags) {
    if (!address || !bytes) return INVALID_VALUE;
    if (fault()) return fault();
    int mapped = type != DEVICE_MEMORY;
    struct request request = {.kind = ALLOCATE, .argument = {bytes, mapped ? PAGE : 256, (uint64_t)type, (uint64_t)which}};
    struct answer answer = ask(request, NULL, NULL);
    if (answer.code != SUCCESS) return (int)answer.code;
    uint64_t at = answer.value[0];
    if (mapped && !map_for_host(at, bytes)) {
        ask((struct request){.kind = RELEASE, .argument = {at}}, NULL, NULL);
        return refuse("cuMemAllocManaged", ADDRESSES_USED);
    }
    *address = at;
    int code = add_allocation(at, bytes, type, flags);
    if (code == SUCCESS) allocation_at(at)->device = which; /* managed and pinned memory is in the first window, of all */
    return code;
}

int release_memory(uint64_t address, int least, int most) {
    if (!address) return SUCCESS;
    const struct allocation *found = find_allocation(address);
    if (!found || found->address != address || found->type < least || found->type > most) return INVALID_VALUE;
    if (found->of_graph) return unuse_graph_memory(address);
    count_in_pool(found->pool, -(int64_t)found->bytes);
    drop_allocation(address);
    return (int)ask((struct request){.kind = RELEASE, .argument = {address}}, NULL, NULL).code;
}

/* Nodes of graphs keep their memory: it goes with the graph. */
void free_all_memory(int which) {
    unregister_all();
    for (size_t number = count; number--;)
        if (table[number].device == which && table[number].type <= PINNED_MEMORY && !table[number].of_graph)
            release_memory(table[number].address, DEVICE_MEMORY, PINNED_MEMORY);
}

EXPORT int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    CALL(CURRENT, address, bytes);
    int barred = unsafe_in_capture();
    RETURN(barred ? barred : allocate_memory(address, bytes, DEVICE_MEMORY, 0));
}

EXPORT int cuMemAllocPitch_v2(uint64_t *address, size_t *pitch, size_t width, size_t height, unsigned element) {
    CALL(CURRENT, address, pitch, width, height, element);
    if (!pitch || !width || !height || (element != 4 && element != 8 && element != 16)) RETURN(INVALID_VALUE);
    *pitch = (width + PITCH - 1) / PITCH * PITCH;
    int barred = unsafe_in_capture();
    RETURN(barred ? barred : allocate_memory(address, *pitch * height, DEVICE_MEMORY, 0));
}

EXPORT int cuMemFree_v2(uint64_t address) {
    CALL(CURRENT, address);
    int barred = unsafe_in_capture();
    if (barred) RETURN(barred);
    RETURN(fault() ? fault() : release_memory(address, DEVICE_MEMORY, MANAGED_MEMORY));
}

EXPORT int cuMemAllocManaged(uint64_t *address, size_t bytes, unsigned flags) {
    CALL(CURRENT, address, bytes, flags);
    if (flags != 1 && flags != 2) RETURN(INVALID_VALUE);
    int barred = unsafe_in_capture();
    RETURN(barred ? barred : allocate_memory(address, bytes, MANAGED_MEMORY, flags));
}

EXPORT int cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) {
    CALL(CURRENT, pointer, bytes, flags);
    uint64_t address = 0;
    if (!pointer || flags & ~7u) RETURN(INVALID_VALUE);
    int barred = unsafe_in_capture();
    if (barred) RETURN(barred);
    int code = allocate_memory(&address, bytes, PINNED_MEMORY, flags);
    *pointer = (void *)(uintptr_t)address;
    RETURN(code);
}

EXPORT int cuMemAllocHost_v2(void **pointer, size_t bytes) { return cuMemHostAlloc(pointer, bytes, 0); }

EXPORT int cuMemFreeHost(void *pointer) {
    CALL(CURRENT, pointer);
    int barred = unsafe_in_capture();
    RETURN(barred ? barred : release_memory((uint64_t)pointer, PINNED_MEMORY, PINNED_MEMORY));
}

EXPORT int cuMemHostGetFlags(unsigned *flags, void *pointer) {
    CALL(CURRENT, flags, pointer);
    const struct allocation *found = find_allocation((uint64_t)pointer);
    int pinned = found && found->type == PINNED_MEMORY;
    if (!flags || (!pinned && !is_registered((uint64_t)pointer))) RETURN(INVALID_VALUE);
    *flags = (pinned ? found->flags : 0) | 2u; /* with unified addresses all pinned memory is mapped */
    RETURN(SUCCESS);
}

EXPORT int cuMemGetInfo_v2(size_t *available, size_t *total) {
    CALL(CURRENT, available, total);
    if (!available || !total) RETURN(INVALID_VALUE);
    int which = device_number();
    *total = devices[which].memory_bytes;
    *available = used_bytes[which] < *total ? *total - used_bytes[which] : 0;
    RETURN(SUCCESS);
}

/* For libnvidia-ml, which reports it. */
EXPORT uint64_t weft_used_bytes(unsigned which);
uint64_t weft_used_bytes(unsigned which) { return which < MOST_DEVICES ? used_bytes[which] : 0; }

EXPORT int cuMemGetAddressRange_v2(uint64_t *start, size_t *bytes, uint64_t address) {
    CALL(CURRENT, start, bytes, address);
    const struct allocation *found = find_allocation(address);
    if (!found) RETURN(NOT_FOUND);
    if (start) *start = found->address;
    if (bytes) *bytes = found->bytes;
    RETURN(SUCCESS);
}

/* ---- pointer attributes ---- */

enum pointer_attribute {
    OF_CONTEXT = 1,
    OF_TYPE,
    OF_DEVICE_POINTER,
    OF_HOST_POINTER,
    OF_P2P_TOKENS,
    OF_SYNC_MEMOPS,
    OF_BUFFER_ID,
    OF_MANAGED,
    OF_DEVICE,
    OF_LEGACY_IPC,
    OF_RANGE_START,
    OF_RANGE_SIZE,
    OF_MAPPED,
    OF_HANDLE_TYPES,
    OF_RDMA,
    OF_ACCESS,
    OF_POOL,
};

static int pointer_attribute(void *value, int attribute, uint64_t given) {
    uint64_t shadow = device_of(given), address = shadow ? shadow : given; /* of registered host memory */
    const struct allocation *found = find_allocation(address);
    int managed = found && (found->type == MANAGED_MEMORY || found->type == MANAGED_VARIABLE);
    int registered = found && found->type == REGISTERED_MEMORY, pinned = registered || (found && found->type == PINNED_MEMORY);
    uint64_t wide = 0;
    int narrow = 0;
    switch (attribute) {
    case OF_CONTEXT: wide = found ? (uint64_t)(uintptr_t)current_context() : 0; break;
    case OF_TYPE: narrow = !found ? 0 : pinned ? 1 : 2; break;
    case OF_DEVICE_POINTER: wide = found ? address : 0; break;
    case OF_HOST_POINTER: wide = registered ? host_of(address) : managed || pinned ? address : 0; break;
    case OF_SYNC_MEMOPS: narrow = 1; break;
    case OF_BUFFER_ID: wide = found ? found->id : 0; break;
    case OF_MANAGED: narrow = managed; break;
    case OF_DEVICE: narrow = found ? found->device : -2; break;
    case OF_LEGACY_IPC: narrow = 0; break;
    case OF_RANGE_START: wide = found ? found->address : 0; break;
    case OF_RANGE_SIZE: wide = found ? found->bytes : 0; break;
    case OF_MAPPED: narrow = found != NULL; break;
    case OF_HANDLE_TYPES: wide = 0; break;
    case OF_RDMA: narrow = 0; break;
    case OF_ACCESS: narrow = found ? 3 : 0; break;
    case OF_POOL: wide = found ? (uint64_t)(uintptr_t)found->pool : 0; break;
    default: return INVALID_VALUE;
    }
    int pointer = attribute == OF_CONTEXT || attribute == OF_DEVICE_POINTER || attribute == OF_HOST_POINTER || attribute == OF_BUFFER_ID ||
                  attribute == OF_RANGE_START || attribute == OF_RANGE_SIZE || attribute == OF_HANDLE_TYPES || attribute == OF_POOL;
    if (pointer)
        memcpy(value, &wide, 8);
    else if (attribute == OF_MANAGED || attribute == OF_MAPPED || attribute == OF_LEGACY_IPC || attribute == OF_RDMA)
        *(uint8_t *)value = (uint8_t)narrow;
    else
        memcpy(value, &narrow, 4);
    return found ? SUCCESS : INVALID_VALUE;
}

EXPORT int cuPointerGetAttribute(void *value, int attribute, uint64_t address) {
    CALL(CURRENT, value, attribute, address);
    RETURN(value ? pointer_attribute(value, attribute, address) : INVALID_VALUE);
}

EXPORT int cuPointerGetAttributes(unsigned number, const int *attributes, void **values, uint64_t address) {
    CALL(CURRENT, number, attributes, values, address);
    if (!attributes || !values) RETURN(INVALID_VALUE);
    for (unsigned i = 0; i < number; i++) { /* of a pointer that is not the driver's: no type, no error */
        int code = pointer_attribute(values[i], attributes[i], address);
        if (code != SUCCESS && (find_allocation(address) || is_registered(address))) RETURN(code);
    }
    RETURN(SUCCESS);
}

EXPORT int cuPointerSetAttribute(const void *value, int attribute, uint64_t address) {
    CALL(CURRENT, value, attribute, address);
    RETURN(value && attribute == OF_SYNC_MEMOPS && find_allocation(address) ? SUCCESS : INVALID_VALUE);
}

/* A stand-in libnvidia-ml.so.1: count, names, memory, clocks and versions of the virtual GPUs. `weft exec` describes them in
 * an environment variable. What a virtual GPU does not have (temperature, power, fans …) is NOT_SUPPORTED, as NVML documents
 * it. Names and numbers are those of the public documentation; no header of NVIDIA's is included. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define EXPORT __attribute__((visibility("default")))
#define MOST 16
#define DRIVER_VERSION "580.0.0"
#define CUDA_VERSION 13000

enum result {
    SUCCESS,
    UNINITIALIZED,
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE,
    DRIVER_NOT_LOADED = 9,
    ARGUMENT_VERSION_MISMATCH = 25,
};

/* One line of WEFT_DRIVER_DEVICES: name;UUID;bytes of memory;capability;SM clock and memory clock in MHz;bits of the bus */
struct device {
    char name[96], uuid[48];
    unsigned long long memory_bytes;
    unsigned major, minor, sm_mhz, memory_mhz, bus_bits;
};

static struct device devices[MOST];
static unsigned count;
static int initialised;

static void read_devices(const char *text) {
    count = 0;
    while (text && *text && count < MOST) {
        struct device *at = &devices[count];
        int fields = sscanf(text, "%95[^;];%47[^;];%llu;%u.%u;%u;%u;%u", at->name, at->uuid, &at->memory_bytes, &at->major, &at->minor, &at->sm_mhz,
                            &at->memory_mhz, &at->bus_bits);
        if (fields != 8) break;
        count++;
        const char *end = strchr(text, '\n');
        text = end ? end + 1 : NULL;
    }
}

EXPORT int nvmlInitWithFlags(unsigned flags) {
    if (flags & ~1u) return INVALID_ARGUMENT; /* 1: no GPU is no error */
    read_devices(getenv("WEFT_DRIVER_DEVICES"));
    if (!count && !flags) return DRIVER_NOT_LOADED;
    initialised++;
    return SUCCESS;
}

EXPORT int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT int nvmlInit(void) { return nvmlInitWithFlags(0); }

EXPORT int nvmlShutdown(void) {
    if (!initialised) return UNINITIALIZED;
    initialised--;
    return SUCCESS;
}

EXPORT const char *nvmlErrorString(int code) {
    switch (code) {
    case SUCCESS: return "success";
    case UNINITIALIZED: return "the library is not initialised";
    case INVALID_ARGUMENT: return "invalid argument";
    case NOT_SUPPORTED: return "not supported by the virtual GPU";
    case NOT_FOUND: return "not found";
    case INSUFFICIENT_SIZE: return "the buffer is too small";
    case DRIVER_NOT_LOADED: return "no virtual GPU: start the program by `weft exec`";
    case ARGUMENT_VERSION_MISMATCH: return "the version of the struct is not known";
    default: return "unknown error";
    }
}

static int write_text(char *to, unsigned room, const char *text) {
    if (!initialised) return UNINITIALIZED;
    if (!to) return INVALID_ARGUMENT;
    if (strlen(text) >= room) return INSUFFICIENT_SIZE;
    strcpy(to, text);
    return SUCCESS;
}

static int write_number(unsigned *to, unsigned value) {
    if (!initialised) return UNINITIALIZED;
    if (!to) return INVALID_ARGUMENT;
    *to = value;
    return SUCCESS;
}

/* ---- the system ---- */

EXPORT int nvmlSystemGetDriverVersion(char *to, unsigned room) { return write_text(to, room, DRIVER_VERSION); }
EXPORT int nvmlSystemGetNVMLVersion(char *to, unsigned room) { return write_text(to, room, "13." DRIVER_VERSION); }
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) { return write_number((unsigned *)version, CUDA_VERSION); }
EXPORT int nvmlSystemGetCudaDriverVersion(int *version) { return write_number((unsigned *)version, CUDA_VERSION); }

EXPORT int nvmlSystemGetProcessName(unsigned pid, char *to, unsigned room) {
    char path[64], name[256] = "";
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    FILE *file = fopen(path, "r");
    if (!file) return initialised ? NOT_FOUND : UNINITIALIZED;
    if (fgets(name, sizeof name, file)) name[strcspn(name, "\n")] = 0;
    fclose(file);
    return write_text(to, room, name);
}

struct branch {
    unsigned version;
    char name[80];
};

EXPORT int nvmlSystemGetDriverBranch(struct branch *shown, unsigned room) {
    return shown ? write_text(shown->name, room < sizeof shown->name ? room : (unsigned)sizeof shown->name, "weft") : INVALID_ARGUMENT;
}

/* ---- devices: a handle is a place in the table ---- */

static const struct device *device_of(const void *handle) {
    for (unsigned i = 0; initialised && i < count; i++)
        if (handle == &devices[i]) return &devices[i];
    return NULL;
}

static int no_device(void) { return initialised ? INVALID_ARGUMENT : UNINITIALIZED; }
static unsigned index_of(const struct device *device) { return (unsigned)(device - devices); }

/* As cuDeviceGetPCIBusId of the driver writes it. */
static void bus_id(const struct device *device, char *to, size_t room) { snprintf(to, room, "0000:%02X:00.0", index_of(device)); }

EXPORT int nvmlDeviceGetCount_v2(unsigned *number) { return write_number(number, count); }
EXPORT int nvmlDeviceGetCount(unsigned *number) { return write_number(number, count); }

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, const void **handle) {
    if (!initialised) return UNINITIALIZED;
    if (!handle || index >= count) return INVALID_ARGUMENT;
    *handle = &devices[index];
    return SUCCESS;
}

EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, const void **handle) { return nvmlDeviceGetHandleByIndex_v2(index, handle); }

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, const void **handle) {
    if (!initialised) return UNINITIALIZED;
    if (!uuid || !handle) return INVALID_ARGUMENT;
    for (unsigned i = 0; i < count; i++) /* with or without its "GPU-" */
        if (strcmp(devices[i].uuid, uuid) == 0 || strcmp(devices[i].uuid + 4, uuid) == 0) return nvmlDeviceGetHandleByIndex_v2(i, handle);
    return NOT_FOUND;
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *text, const void **handle) {
    char own[32];
    if (!initialised) return UNINITIALIZED;
    if (!text || !handle) return INVALID_ARGUMENT;
    size_t length = strlen(text);
    for (unsigned i = 0; i < count; i++) { /* the domain may have four or eight digits */
        bus_id(&devices[i], own, sizeof own);
        if (length >= 12 && strcasecmp(text + length - 12, own) == 0) return nvmlDeviceGetHandleByIndex_v2(i, handle);
    }
    return NOT_FOUND;
}

EXPORT int nvmlDeviceGetName(const void *handle, char *to, unsigned room) {
    const struct device *device = device_of(handle);
    return device ? write_text(to, room, device->name) : no_device();
}

EXPORT int nvmlDeviceGetUUID(const void *handle, char *to, unsigned room) {
    const struct device *device = device_of(handle);
    return device ? write_text(to, room, device->uuid) : no_device();
}

EXPORT int nvmlDeviceGetIndex(const void *handle, unsigned *index) {
    const struct device *device = device_of(handle);
    return device ? write_number(index, index_of(device)) : no_device();
}

EXPORT int nvmlDeviceGetMinorNumber(const void *handle, unsigned *minor) { return nvmlDeviceGetIndex(handle, minor); }

EXPORT int nvmlDeviceGetCudaComputeCapability(const void *handle, unsigned *major, unsigned *minor) {
    const struct device *device = device_of(handle);
    if (!device) return no_device();
    int code = write_number(major, device->major);
    return code ? code : write_number(minor, device->minor);
}

/* Ampere is 7, Ada 8, Hopper 9, Blackwell 10. */
EXPORT int nvmlDeviceGetArchitecture(const void *handle, unsigned *architecture) {
    const struct device *device = device_of(handle);
    if (!device) return no_device();
    unsigned known = device->major == 8 ? (device->minor == 9 ? 8 : 7) : device->major == 9 ? 9 : 10;
    return write_number(architecture, known);
}

struct pci {
    char short_id[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char id[32];
};

EXPORT int nvmlDeviceGetPciInfo_v3(const void *handle, struct pci *shown) {
    const struct device *device = device_of(handle);
    if (!device || !shown) return no_device();
    memset(shown, 0, sizeof *shown);
    shown->bus = index_of(device);
    bus_id(device, shown->short_id, sizeof shown->short_id);
    snprintf(shown->id, sizeof shown->id, "0000%s", shown->short_id);
    return SUCCESS;
}

EXPORT int nvmlDeviceGetPciInfo_v2(const void *handle, struct pci *shown) { return nvmlDeviceGetPciInfo_v3(handle, shown); }

/* Bytes that this process has allocated, if it uses the driver. Each process has separate device memory. */
static uint64_t used_bytes(unsigned which) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!driver) return 0;
    uint64_t (*used)(unsigned) = NULL;
    *(void **)&used = dlsym(driver, "weft_used_bytes");
    uint64_t bytes = used ? used(which) : 0;
    dlclose(driver);
    return bytes;
}

struct memory {
    uint64_t total, available, used;
};

EXPORT int nvmlDeviceGetMemoryInfo(const void *handle, struct memory *shown) {
    const struct device *device = device_of(handle);
    if (!device || !shown) return no_device();
    shown->total = device->memory_bytes;
    shown->used = used_bytes(index_of(device));
    shown->available = shown->total - shown->used;
    return SUCCESS;
}

struct memory_v2 {
    unsigned version;
    uint64_t total, reserved, available, used;
};

EXPORT int nvmlDeviceGetMemoryInfo_v2(const void *handle, struct memory_v2 *shown) {
    if (!shown) return no_device();
    if (shown->version != (sizeof *shown | 2u << 24)) return ARGUMENT_VERSION_MISMATCH;
    struct memory plain;
    int code = nvmlDeviceGetMemoryInfo(handle, &plain);
    if (code != SUCCESS) return code;
    *shown = (struct memory_v2){shown->version, plain.total, 0, plain.available, plain.used};
    return SUCCESS;
}

EXPORT int nvmlDeviceGetMemoryBusWidth(const void *handle, unsigned *bits) {
    const struct device *device = device_of(handle);
    return device ? write_number(bits, device->bus_bits) : no_device();
}

/* Clocks: 0 graphics, 1 SM, 2 memory, 3 video. The highest ones are known; at none does the virtual GPU run now. */
EXPORT int nvmlDeviceGetMaxClockInfo(const void *handle, int type, unsigned *mhz) {
    const struct device *device = device_of(handle);
    if (!device || type < 0 || type > 3) return no_device();
    if (type == 3) return NOT_SUPPORTED;
    return write_number(mhz, type == 2 ? device->memory_mhz : device->sm_mhz);
}

EXPORT int nvmlDeviceGetComputeMode(const void *handle, unsigned *mode) {
    return device_of(handle) ? write_number(mode, 0) : no_device(); /* any process may use it */
}

#define WITHOUT(name)                                                                                                \
    EXPORT int name(const void *handle);                                                                             \
    int name(const void *handle) { return device_of(handle) ? NOT_SUPPORTED : no_device(); }
#include "without.h"

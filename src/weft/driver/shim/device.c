/* The devices: names, attributes, peers. */
#include <stdio.h>
#include <string.h>

#include "shim.h"

#define ATTRIBUTES ((int)(sizeof devices[0].attributes / sizeof devices[0].attributes[0]))
#define CAPABILITY_MAJOR 75
#define CAPABILITY_MINOR 76

int is_device(int which) { return which >= 0 && which < device_count; }

EXPORT int cuDeviceGetCount(int *count) {
    CALL(INITIALISED, count);
    if (!count) RETURN(INVALID_VALUE);
    *count = device_count;
    RETURN(SUCCESS);
}

EXPORT int cuDeviceGet(int *found, int ordinal) {
    CALL(INITIALISED, found, ordinal);
    if (!found) RETURN(INVALID_VALUE);
    if (!is_device(ordinal)) RETURN(INVALID_DEVICE);
    *found = ordinal;
    RETURN(SUCCESS);
}

EXPORT int cuDeviceGetName(char *name, int length, int which) {
    CALL(INITIALISED, name, length, which);
    if (!name || length < 1) RETURN(INVALID_VALUE);
    if (!is_device(which)) RETURN(INVALID_DEVICE);
    snprintf(name, (size_t)length, "%s", devices[which].name);
    RETURN(SUCCESS);
}

EXPORT int cuDeviceGetUuid_v2(void *uuid, int which) {
    CALL(INITIALISED, uuid, which);
    if (!uuid) RETURN(INVALID_VALUE);
    if (!is_device(which)) RETURN(INVALID_DEVICE);
    memcpy(uuid, devices[which].uuid, sizeof devices[which].uuid);
    RETURN(SUCCESS);
}

EXPORT int cuDeviceGetUuid(void *uuid, int which) { return cuDeviceGetUuid_v2(uuid, which); }

EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int which) {
    CALL(INITIALISED, bytes, which);
    if (!bytes) RETURN(INVALID_VALUE);
    if (!is_device(which)) RETURN(INVALID_DEVICE);
    *bytes = devices[which].memory_bytes;
    RETURN(SUCCESS);
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int which) {
    CALL(INITIALISED, value, attribute, which);
    if (!value || attribute < 1 || attribute >= ATTRIBUTES) RETURN(INVALID_VALUE);
    if (!is_device(which)) RETURN(INVALID_DEVICE);
    *value = devices[which].attributes[attribute];
    RETURN(SUCCESS);
}

EXPORT int cuDeviceComputeCapability(int *major, int *minor, int which) {
    CALL(INITIALISED, major, minor, which);
    if (!major || !minor) RETURN(INVALID_VALUE);
    if (!is_device(which)) RETURN(INVALID_DEVICE);
    *major = devices[which].attributes[CAPABILITY_MAJOR];
    *minor = devices[which].attributes[CAPABILITY_MINOR];
    RETURN(SUCCESS);
}

EXPORT int cuDeviceGetPCIBusId(char *text, int length, int which) {
    CALL(INITIALISED, text, length, which);
    if (!text || length < 13) RETURN(INVALID_VALUE);
    if (!is_device(which)) RETURN(INVALID_DEVICE);
    snprintf(text, (size_t)length, "0000:%02X:00.0", (unsigned)which);
    RETURN(SUCCESS);
}

EXPORT int cuDeviceGetByPCIBusId(int *found, const char *text) {
    CALL(INITIALISED, found, text);
    if (!found || !text) RETURN(INVALID_VALUE);
    unsigned bus;
    char rest;
    if (sscanf(text, "%*x:%x:%*x.%c", &bus, &rest) != 2 || !is_device((int)bus)) RETURN(INVALID_DEVICE);
    *found = (int)bus;
    RETURN(SUCCESS);
}

EXPORT int cuDeviceCanAccessPeer(int *can, int which, int peer) {
    CALL(INITIALISED, can, which, peer);
    if (!can) RETURN(INVALID_VALUE);
    if (!is_device(which) || !is_device(peer)) RETURN(INVALID_DEVICE);
    *can = 0;
    RETURN(SUCCESS);
}

EXPORT int cuDeviceGetExecAffinitySupport(int *supported, int type, int which) {
    CALL(INITIALISED, supported, type, which);
    if (!supported) RETURN(INVALID_VALUE);
    if (!is_device(which)) RETURN(INVALID_DEVICE);
    *supported = 0;
    RETURN(SUCCESS);
}

/* No device reaches the memory of another: copies do. */
EXPORT int cuCtxEnablePeerAccess(struct handle *context, unsigned flags) {
    CALL(CURRENT, context, flags);
    RETURN(flags ? INVALID_VALUE : is_handle(context, CONTEXT) ? PEER_ACCESS_UNSUPPORTED : INVALID_CONTEXT);
}

EXPORT int cuCtxDisablePeerAccess(struct handle *context) {
    CALL(CURRENT, context);
    RETURN(is_handle(context, CONTEXT) ? 705 : INVALID_CONTEXT); /* 705: it was not enabled */
}

EXPORT int cuDeviceGetP2PAttribute(int *value, int attribute, int source, int target) {
    CALL(INITIALISED, value, attribute, source, target);
    if (!is_device(source) || !is_device(target)) RETURN(INVALID_DEVICE);
    if (source == target || !value || attribute < 1 || attribute > 5) RETURN(INVALID_VALUE);
    *value = 0;
    RETURN(SUCCESS);
}

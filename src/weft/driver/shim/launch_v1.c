/* Launches as before CUDA 4: block, shared memory and parameters are set in the function, then it is launched. PyCUDA still
 * does so. */
#include <stdlib.h>
#include <string.h>

#include "shim.h"

#define MOST_BYTES 4096
#define BUFFER ((void *)1)
#define BUFFER_SIZE ((void *)2)

struct settings {
    unsigned block[3], shared;
    size_t bytes;
    uint8_t parameters[MOST_BYTES];
};

int cuLaunchKernel(struct handle *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   struct handle *stream, void **parameters, void **extra);

static struct settings *settings_of(struct handle *handle) {
    if (!is_handle(handle, FUNCTION)) return NULL;
    struct function *function = handle->data;
    if (!function->settings) function->settings = calloc(1, sizeof(struct settings));
    return function->settings;
}

static int set(struct handle *function, int offset, const void *from, size_t bytes) {
    struct settings *settings = settings_of(function);
    if (!settings) return INVALID_HANDLE;
    if (!from || offset < 0 || bytes > MOST_BYTES || (size_t)offset > MOST_BYTES - bytes) return INVALID_VALUE;
    memcpy(settings->parameters + offset, from, bytes);
    return SUCCESS;
}

EXPORT int cuFuncSetBlockShape(struct handle *function, int x, int y, int z) {
    CALL(CURRENT, function, x, y, z);
    struct settings *settings = settings_of(function);
    if (!settings) RETURN(INVALID_HANDLE);
    if (x < 1 || y < 1 || z < 1) RETURN(INVALID_VALUE);
    settings->block[0] = (unsigned)x;
    settings->block[1] = (unsigned)y;
    settings->block[2] = (unsigned)z;
    RETURN(SUCCESS);
}

EXPORT int cuFuncSetSharedSize(struct handle *function, unsigned bytes) {
    CALL(CURRENT, function, bytes);
    struct settings *settings = settings_of(function);
    if (!settings) RETURN(INVALID_HANDLE);
    settings->shared = bytes;
    RETURN(SUCCESS);
}

EXPORT int cuParamSetSize(struct handle *function, unsigned bytes) {
    CALL(CURRENT, function, bytes);
    struct settings *settings = settings_of(function);
    if (!settings) RETURN(INVALID_HANDLE);
    if (bytes > MOST_BYTES) RETURN(INVALID_VALUE);
    settings->bytes = bytes;
    RETURN(SUCCESS);
}

EXPORT int cuParamSeti(struct handle *function, int offset, unsigned value) {
    CALL(CURRENT, function, offset, value);
    RETURN(set(function, offset, &value, sizeof value));
}

EXPORT int cuParamSetf(struct handle *function, int offset, float value) {
    CALL(CURRENT, function, offset, value);
    RETURN(set(function, offset, &value, sizeof value));
}

EXPORT int cuParamSetv(struct handle *function, int offset, const void *from, unsigned bytes) {
    CALL(CURRENT, function, offset, from, bytes);
    RETURN(set(function, offset, from, bytes));
}

EXPORT int cuLaunchGridAsync(struct handle *function, int width, int height, struct handle *stream) {
    CALL(CURRENT, function, width, height, stream);
    struct settings *settings = settings_of(function);
    if (!settings) RETURN(INVALID_HANDLE);
    if (width < 1 || height < 1 || !settings->block[0]) RETURN(INVALID_VALUE);
    size_t bytes = settings->bytes;
    void *extra[] = {BUFFER, settings->parameters, BUFFER_SIZE, &bytes, NULL};
    const unsigned *block = settings->block;
    RETURN(cuLaunchKernel(function, (unsigned)width, (unsigned)height, 1, block[0], block[1], block[2], settings->shared, stream, NULL, extra));
}

EXPORT int cuLaunchGrid(struct handle *function, int width, int height) { return cuLaunchGridAsync(function, width, height, NULL); }

EXPORT int cuLaunch(struct handle *function) { return cuLaunchGridAsync(function, 1, 1, NULL); }

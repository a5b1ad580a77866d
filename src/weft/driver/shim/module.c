/* Modules and libraries: both kinds of handle are the same. The server turns an image into PTX. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "module.h"

/* `bytes` is 0 where the API does not pass the size of the image. */
static int load(struct handle **made, const void *image, size_t bytes, unsigned count, const int *options, void **values, int library) {
    if (!made || !image) return INVALID_VALUE;
    if (fault()) return fault();
    if (!bytes) bytes = image_bytes(&image);
    void *blob = NULL;
    struct answer answer = ask((struct request){.kind = LOAD, .argument = {(uint64_t)device_number()}, .blob_bytes = bytes}, image, &blob);
    write_logs(count, options, values, answer.code && blob ? blob : "");
    if (answer.code != SUCCESS) {
        free(blob);
        return (int)answer.code;
    }
    struct handle *handle = new_handle(MODULE);
    struct module *module = calloc(1, sizeof *module);
    if (!handle || !module) {
        free(module);
        free(blob);
        return OUT_OF_MEMORY;
    }
    *module = (struct module){blob, answer.blob_bytes, (uint32_t)answer.value[1], device_number(), library};
    handle->data = module;
    handle->id = answer.value[0];
    *made = handle;
    return SUCCESS;
}

static int load_file(struct handle **made, const char *path, unsigned count, const int *options, void **values, int library) {
    FILE *file = path ? fopen(path, "rb") : NULL;
    if (!file) return path ? 301 : INVALID_VALUE; /* 301: file not found */
    size_t room = 1 << 16, bytes = 0, got;
    char *text = malloc(room + 1);
    while (text && (got = fread(text + bytes, 1, room - bytes, file)) > 0) {
        bytes += got;
        if (bytes == room) {
            char *larger = realloc(text, 2 * room + 1);
            if (!larger) free(text);
            text = larger;
            room *= 2;
        }
    }
    fclose(file);
    if (!text) return OUT_OF_MEMORY;
    text[bytes] = 0;
    int code = bytes ? load(made, text, bytes, count, options, values, library) : INVALID_IMAGE;
    free(text);
    return code;
}

static void drop_function(struct handle *handle, void *module) {
    if (handle->owner != module) return;
    struct function *function = handle->data;
    free(function->name);
    free(function->layout);
    free(function->settings);
    free_handle(handle);
}

static void unload(struct handle *handle, void *with) {
    (void)with;
    each_handle(FUNCTION, drop_function, handle);
    void *blob = NULL;
    struct answer answer = ask((struct request){.kind = UNLOAD, .argument = {handle->id}}, NULL, &blob);
    for (uint64_t i = 0; i < answer.blob_bytes / 8; i++) {
        uint64_t variable;
        memcpy(&variable, (char *)blob + 8 * i, 8);
        drop_allocation(variable);
    }
    free(blob);
    free(((struct module *)handle->data)->names);
    free_handle(handle);
}

static void unload_of(struct handle *handle, void *which) {
    if (((struct module *)handle->data)->device == *(int *)which) unload(handle, NULL);
}

void unload_all_modules(int which) { each_handle(MODULE, unload_of, &which); }

int runs_on(struct handle *function, int which) {
    const struct module *module = function->owner->data;
    return module->library || module->device == which;
}

EXPORT int cuModuleLoadDataEx(struct handle **module, const void *image, unsigned count, int *options, void **values) {
    CALL(CURRENT, module, image, count, options, values);
    RETURN(load(module, image, 0, count, options, values, 0));
}

EXPORT int cuModuleLoadData(struct handle **module, const void *image) {
    CALL(CURRENT, module, image);
    RETURN(load(module, image, 0, 0, NULL, NULL, 0));
}

EXPORT int cuModuleLoadFatBinary(struct handle **module, const void *image) {
    CALL(CURRENT, module, image);
    RETURN(load(module, image, 0, 0, NULL, NULL, 0));
}

EXPORT int cuModuleLoad(struct handle **module, const char *path) {
    CALL(CURRENT, module, path);
    RETURN(load_file(module, path, 0, NULL, NULL, 0));
}

EXPORT int cuModuleUnload(struct handle *module) {
    CALL(INITIALISED, module);
    if (!is_handle(module, MODULE)) RETURN(INVALID_HANDLE);
    unload(module, NULL);
    RETURN(SUCCESS);
}

EXPORT int cuModuleGetLoadingMode(int *mode) {
    CALL(INITIALISED, mode);
    if (!mode) RETURN(INVALID_VALUE);
    *mode = 2; /* lazy */
    RETURN(SUCCESS);
}

EXPORT int cuLibraryLoadData(struct handle **library, const void *code, int *options, void **values, unsigned count, int *library_options,
                             void **library_values, unsigned library_count) {
    CALL(INITIALISED, library, code, options, values, count, library_options, library_values, library_count);
    RETURN(load(library, code, 0, count, options, values, 1));
}

EXPORT int cuLibraryLoadFromFile(struct handle **library, const char *path, int *options, void **values, unsigned count, int *library_options,
                                 void **library_values, unsigned library_count) {
    CALL(INITIALISED, library, path, options, values, count, library_options, library_values, library_count);
    RETURN(load_file(library, path, count, options, values, 1));
}

EXPORT int cuLibraryUnload(struct handle *library) {
    CALL(INITIALISED, library);
    if (!is_handle(library, MODULE)) RETURN(INVALID_HANDLE);
    unload(library, NULL);
    RETURN(SUCCESS);
}

EXPORT int cuLibraryGetModule(struct handle **module, struct handle *library) {
    CALL(CURRENT, module, library);
    if (!module) RETURN(INVALID_VALUE);
    if (!is_handle(library, MODULE)) RETURN(INVALID_HANDLE);
    *module = library;
    RETURN(SUCCESS);
}

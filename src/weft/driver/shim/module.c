/* Modules, libraries and functions. A library is a module and a kernel a function: both kinds of handle are the same.
 * The server turns an image into PTX and finds kernels and variables in it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

#define FATBIN "\x50\xED\x55\xBA"
#define WRAPPER "\xB1\x43\x62\x46"
#define MAX_DYNAMIC_SHARED 8
#define CARVEOUT 9
#define ATTRIBUTES 16
#define LOCAL_BYTES 3
#define REGISTERS 4

enum option { INFO_LOG = 3, INFO_LOG_SIZE, ERROR_LOG, ERROR_LOG_SIZE };

struct module {
    char *names; /* of the kernels, each ended by a NUL */
    size_t bytes;
    uint32_t kernels;
    int device;
    int library; /* of no context: it is loaded on each device that uses it */
};

/* ---- images ---- */

/* Returns the size of an image, which the API does not pass: of a fatbin and an ELF file by their heads, of PTX by its
 * NUL. `*image` is changed to the data where a wrapper was given. */
static int starts_with(const uint8_t *bytes, const char *magic) {
    for (int i = 0; i < 4; i++) /* stops at the NUL of a text that is shorter */
        if (bytes[i] != (uint8_t)magic[i]) return 0;
    return 1;
}

static size_t image_bytes(const void **image) {
    if (starts_with(*image, WRAPPER)) {
        const struct { uint32_t magic, version; const void *data; } *wrapper = *image;
        *image = wrapper->data;
    }
    const uint8_t *bytes = *image;
    if (starts_with(bytes, FATBIN)) {
        uint16_t head;
        uint64_t payload;
        memcpy(&head, bytes + 6, sizeof head);
        memcpy(&payload, bytes + 8, sizeof payload);
        return head + payload;
    }
    if (!starts_with(bytes, "\177ELF")) return strlen((const char *)bytes);
    uint64_t segments, sections, end = 64;
    uint16_t segment_size, segment_count, section_size, section_count;
    memcpy(&segments, bytes + 32, 8);
    memcpy(&sections, bytes + 40, 8);
    memcpy(&segment_size, bytes + 54, 2);
    memcpy(&segment_count, bytes + 56, 2);
    memcpy(&section_size, bytes + 58, 2);
    memcpy(&section_count, bytes + 60, 2);
    if (segments + (uint64_t)segment_size * segment_count > end) end = segments + (uint64_t)segment_size * segment_count;
    if (sections + (uint64_t)section_size * section_count > end) end = sections + (uint64_t)section_size * section_count;
    for (uint16_t number = 0; number < section_count && section_size >= 64; number++) {
        const uint8_t *section = bytes + sections + (uint64_t)number * section_size;
        uint32_t type;
        uint64_t at, size;
        memcpy(&type, section + 4, 4);
        memcpy(&at, section + 24, 8);
        memcpy(&size, section + 32, 8);
        if (type != 8 && at + size > end) end = at + size; /* 8: a section without bytes in the file */
    }
    return end;
}

/* Writes the server's message to the program's error log, if it gave one, and an empty text to the other. */
static void write_logs(unsigned count, const int *options, void **values, const char *text) {
    char *logs[2] = {NULL, NULL};
    size_t room[2] = {0, 0};
    for (unsigned i = 0; options && values && i < count; i++) {
        if (options[i] == INFO_LOG || options[i] == ERROR_LOG) logs[options[i] == ERROR_LOG] = values[i];
        if (options[i] == INFO_LOG_SIZE || options[i] == ERROR_LOG_SIZE) room[options[i] == ERROR_LOG_SIZE] = (size_t)(unsigned)(uintptr_t)values[i];
    }
    for (int which = 0; which < 2; which++) {
        size_t written = 0;
        if (logs[which] && room[which]) {
            int length = snprintf(logs[which], room[which], "%s", which ? text : "");
            written = length < 0 ? 0 : (size_t)length < room[which] ? (size_t)length : room[which] - 1;
        }
        for (unsigned i = 0; options && values && i < count; i++)
            if (options[i] == (which ? ERROR_LOG_SIZE : INFO_LOG_SIZE)) values[i] = (void *)(uintptr_t)written;
    }
}

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

/* ---- functions and variables of a module ---- */

struct search {
    struct handle *module, *found;
    const char *name;
};

static void match(struct handle *handle, void *with) {
    struct search *search = with;
    if (handle->owner == search->module && strcmp(((struct function *)handle->data)->name, search->name) == 0) search->found = handle;
}

static int find_function(struct handle **made, struct handle *module, const char *name) {
    if (!made || !name) return INVALID_VALUE;
    if (!is_handle(module, MODULE)) return INVALID_HANDLE;
    struct search search = {module, NULL, name};
    each_handle(FUNCTION, match, &search);
    if (search.found) {
        *made = search.found;
        return SUCCESS;
    }
    void *blob = NULL;
    struct answer answer = ask((struct request){.kind = FIND_FUNCTION, .argument = {module->id}, .blob_bytes = strlen(name)}, name, &blob);
    if (answer.code != SUCCESS) {
        free(blob);
        return (int)answer.code;
    }
    struct handle *handle = new_handle(FUNCTION);
    struct function *function = calloc(1, sizeof *function);
    uint32_t *facts = blob;
    if (!handle || !function || answer.blob_bytes < 4 * (1 + ATTRIBUTES) || answer.blob_bytes != 4 * (1 + ATTRIBUTES + 2 * (uint64_t)facts[0])) {
        free(function);
        free(blob);
        return OUT_OF_MEMORY;
    }
    function->parameters = facts[0];
    memcpy(function->attributes, facts + 1, sizeof function->attributes);
    function->layout = malloc(8 * (size_t)facts[0] + 8);
    function->name = strdup(name);
    if (function->layout) memcpy(function->layout, facts + 1 + ATTRIBUTES, 8 * (size_t)facts[0]);
    for (uint32_t i = 0; i < facts[0]; i++) {
        uint32_t end = facts[1 + ATTRIBUTES + 2 * i] + facts[2 + ATTRIBUTES + 2 * i];
        if (end > function->parameter_bytes) function->parameter_bytes = end;
    }
    free(blob);
    handle->owner = module;
    handle->id = answer.value[0];
    handle->data = function;
    *made = handle;
    return function->layout && function->name ? SUCCESS : OUT_OF_MEMORY;
}

static int find_symbol(uint64_t *address, size_t *bytes, struct handle *module, const char *name) {
    if (!name) return INVALID_VALUE;
    if (!is_handle(module, MODULE)) return INVALID_HANDLE;
    struct answer answer = ask((struct request){.kind = FIND_SYMBOL, .argument = {module->id, (uint64_t)device_number()}, .blob_bytes = strlen(name)}, name, NULL);
    if (answer.code != SUCCESS) return (int)answer.code;
    uint64_t at = answer.value[0], size = answer.value[1];
    int managed = answer.value[2] != 0;
    if (managed && !find_allocation(at) && !map_for_host(at, size)) return refuse("a managed variable", ADDRESSES_USED);
    if (address) *address = at;
    if (bytes) *bytes = size;
    return add_allocation(at, size, managed ? MANAGED_VARIABLE : MODULE_VARIABLE, 0);
}

static int enumerate(struct handle **made, unsigned count, struct handle *module) {
    if (!made) return INVALID_VALUE;
    if (!is_handle(module, MODULE)) return INVALID_HANDLE;
    const struct module *data = module->data;
    const char *name = data->names;
    for (unsigned i = 0; i < count && i < data->kernels; i++, name += strlen(name) + 1) {
        int code = find_function(&made[i], module, name);
        if (code != SUCCESS) return code;
    }
    return SUCCESS;
}

EXPORT int cuModuleGetFunction(struct handle **function, struct handle *module, const char *name) {
    CALL(CURRENT, function, module, name);
    call.text = name;
    RETURN(find_function(function, module, name));
}

EXPORT int cuModuleGetFunctionCount(unsigned *count, struct handle *module) {
    CALL(INITIALISED, count, module);
    if (!count) RETURN(INVALID_VALUE);
    if (!is_handle(module, MODULE)) RETURN(INVALID_HANDLE);
    *count = ((struct module *)module->data)->kernels;
    RETURN(SUCCESS);
}

EXPORT int cuModuleEnumerateFunctions(struct handle **functions, unsigned count, struct handle *module) {
    CALL(INITIALISED, functions, count, module);
    RETURN(enumerate(functions, count, module));
}

EXPORT int cuModuleGetGlobal_v2(uint64_t *address, size_t *bytes, struct handle *module, const char *name) {
    CALL(CURRENT, address, bytes, module, name);
    RETURN(find_symbol(address, bytes, module, name));
}

EXPORT int cuLibraryGetKernel(struct handle **kernel, struct handle *library, const char *name) {
    CALL(INITIALISED, kernel, library, name);
    call.text = name;
    RETURN(find_function(kernel, library, name));
}

EXPORT int cuLibraryGetKernelCount(unsigned *count, struct handle *library) { return cuModuleGetFunctionCount(count, library); }

EXPORT int cuLibraryEnumerateKernels(struct handle **kernels, unsigned count, struct handle *library) {
    CALL(INITIALISED, kernels, count, library);
    RETURN(enumerate(kernels, count, library));
}

EXPORT int cuLibraryGetGlobal(uint64_t *address, size_t *bytes, struct handle *library, const char *name) {
    CALL(CURRENT, address, bytes, library, name);
    RETURN(find_symbol(address, bytes, library, name));
}

EXPORT int cuLibraryGetManaged(uint64_t *address, size_t *bytes, struct handle *library, const char *name) {
    CALL(INITIALISED, address, bytes, library, name);
    RETURN(find_symbol(address, bytes, library, name));
}

EXPORT int cuKernelGetFunction(struct handle **function, struct handle *kernel) {
    CALL(CURRENT, function, kernel);
    if (!function) RETURN(INVALID_VALUE);
    if (!is_handle(kernel, FUNCTION)) RETURN(INVALID_HANDLE);
    *function = kernel;
    RETURN(SUCCESS);
}

EXPORT int cuKernelGetLibrary(struct handle **library, struct handle *kernel) {
    CALL(INITIALISED, library, kernel);
    if (!library) RETURN(INVALID_VALUE);
    if (!is_handle(kernel, FUNCTION)) RETURN(INVALID_HANDLE);
    *library = kernel->owner;
    RETURN(SUCCESS);
}

EXPORT int cuFuncGetModule(struct handle **module, struct handle *function) { return cuKernelGetLibrary(module, function); }

EXPORT int cuFuncGetName(const char **name, struct handle *handle) {
    CALL(INITIALISED, name, handle);
    if (!name) RETURN(INVALID_VALUE);
    if (!is_handle(handle, FUNCTION)) RETURN(INVALID_HANDLE);
    *name = ((struct function *)handle->data)->name;
    RETURN(SUCCESS);
}

EXPORT int cuKernelGetName(const char **name, struct handle *kernel) { return cuFuncGetName(name, kernel); }

EXPORT int cuFuncGetParamInfo(struct handle *handle, size_t index, size_t *offset, size_t *bytes) {
    CALL(CURRENT, handle, index, offset, bytes);
    if (!is_handle(handle, FUNCTION)) RETURN(INVALID_HANDLE);
    const struct function *function = handle->data;
    if (index >= function->parameters || !offset) RETURN(INVALID_VALUE);
    *offset = function->layout[2 * index];
    if (bytes) *bytes = function->layout[2 * index + 1];
    RETURN(SUCCESS);
}

EXPORT int cuKernelGetParamInfo(struct handle *kernel, size_t index, size_t *offset, size_t *bytes) {
    return cuFuncGetParamInfo(kernel, index, offset, bytes);
}

EXPORT int cuFuncIsLoaded(int *state, struct handle *function) {
    CALL(INITIALISED, state, function);
    if (!state) RETURN(INVALID_VALUE);
    if (!is_handle(function, FUNCTION)) RETURN(INVALID_HANDLE);
    *state = 1;
    RETURN(SUCCESS);
}

EXPORT int cuFuncLoad(struct handle *function) {
    CALL(INITIALISED, function);
    RETURN(is_handle(function, FUNCTION) ? SUCCESS : INVALID_HANDLE);
}

/* ---- attributes ---- */

/* Registers and local memory of a kernel that came as PTX are found out when they are asked for: ptxas takes time. */
static void find_resources(struct handle *handle) {
    struct function *function = handle->data;
    if (function->attributes[REGISTERS]) return;
    struct answer answer = ask((struct request){.kind = OCCUPANCY, .argument = {handle->id, 32, 0, 0, (uint64_t)device_number()}}, NULL, NULL);
    function->attributes[REGISTERS] = (int32_t)answer.value[2];
    function->attributes[LOCAL_BYTES] = (int32_t)answer.value[3];
}

static int get_attribute(int *value, int attribute, struct handle *handle) {
    if (!value || attribute < 0 || attribute >= ATTRIBUTES) return INVALID_VALUE;
    if (!is_handle(handle, FUNCTION)) return INVALID_HANDLE;
    if (attribute == REGISTERS || attribute == LOCAL_BYTES) find_resources(handle);
    *value = ((struct function *)handle->data)->attributes[attribute];
    return SUCCESS;
}

static int set_attribute(int attribute, int value, struct handle *handle) {
    if (!is_handle(handle, FUNCTION)) return INVALID_HANDLE;
    struct function *function = handle->data;
    int most = devices[device_number()].attributes[97] - function->attributes[1]; /* opt-in limit of the device, less the static part */
    if (attribute == MAX_DYNAMIC_SHARED && (value < 0 || value > most)) return INVALID_VALUE;
    if (attribute == CARVEOUT && (value < -1 || value > 100)) return INVALID_VALUE;
    if (attribute < MAX_DYNAMIC_SHARED || attribute >= ATTRIBUTES) return INVALID_VALUE;
    if (attribute > CARVEOUT && attribute < 14 && value) return refuse("cuFuncSetAttribute", "a kernel's cluster size: clusters are not supported");
    function->attributes[attribute] = value;
    return SUCCESS;
}

EXPORT int cuFuncGetAttribute(int *value, int attribute, struct handle *function) {
    CALL(INITIALISED, value, attribute, function);
    RETURN(get_attribute(value, attribute, function));
}

EXPORT int cuFuncSetAttribute(struct handle *function, int attribute, int value) {
    CALL(INITIALISED, function, attribute, value);
    RETURN(set_attribute(attribute, value, function));
}

EXPORT int cuKernelGetAttribute(int *value, int attribute, struct handle *kernel, int which) {
    CALL(INITIALISED, value, attribute, kernel, which);
    RETURN(!is_device(which) ? INVALID_DEVICE : get_attribute(value, attribute, kernel));
}

EXPORT int cuKernelSetAttribute(int attribute, int value, struct handle *kernel, int which) {
    CALL(INITIALISED, attribute, value, kernel, which);
    RETURN(!is_device(which) ? INVALID_DEVICE : set_attribute(attribute, value, kernel));
}

EXPORT int cuFuncSetCacheConfig(struct handle *function, int config) {
    CALL(INITIALISED, function, config);
    if (!is_handle(function, FUNCTION)) RETURN(INVALID_HANDLE);
    RETURN(config < 0 || config > 3 ? INVALID_VALUE : SUCCESS);
}

EXPORT int cuKernelSetCacheConfig(struct handle *kernel, int config, int which) {
    CALL(INITIALISED, kernel, config, which);
    if (!is_device(which)) RETURN(INVALID_DEVICE);
    if (!is_handle(kernel, FUNCTION)) RETURN(INVALID_HANDLE);
    RETURN(config < 0 || config > 3 ? INVALID_VALUE : SUCCESS);
}

EXPORT int cuFuncSetSharedMemConfig(struct handle *function, int config) {
    CALL(INITIALISED, function, config);
    if (!is_handle(function, FUNCTION)) RETURN(INVALID_HANDLE);
    RETURN(config < 0 || config > 2 ? INVALID_VALUE : SUCCESS);
}

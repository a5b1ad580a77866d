/* Functions and variables of a module. A kernel of a library is a function: both kinds of handle are the same. */
#include <stdlib.h>
#include <string.h>

#include "module.h"

#define MAX_DYNAMIC_SHARED 8
#define CARVEOUT 9
#define ATTRIBUTES 16
#define LOCAL_BYTES 3
#define REGISTERS 4

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
    if (attribute > CARVEOUT && attribute < 14 && value) return refuse("cuFuncSetAttribute", "a kernel's cluster size: give it at the launch, by cuLaunchKernelEx");
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

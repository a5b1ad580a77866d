/* NVRTC: -lineinfo, so that a cubin contains its PTX and the PTX its source lines; and the PTX of a cubin is noted, because
 * the copy inside the cubin has lost its lines.
 *
 * One NVRTC of a process is wrapped. A second one stays as it is: its cubins are refused with the cure. */
#include <stdlib.h>
#include <string.h>

#include "audit.h"

#define OUT_OF_MEMORY 1 /* nvrtcResult */

typedef int compile_function(void *program, int count, const char *const *options);
typedef int get_function(void *program, char *to);
typedef int size_function(void *program, size_t *bytes);

static const struct link_map *library;
static compile_function *real_compile;
static get_function *real_get_cubin, *real_get_ptx;
static size_function *real_cubin_size, *real_ptx_size;

static int has(const char *option, const char *const *forms) {
    for (; *forms; forms++)
        if (strcmp(option, *forms) == 0) return 1;
    return 0;
}

const char **with_lineinfo(int count, const char *const *options, int *new_count) {
    static const char *const given[] = {"-lineinfo", "--generate-line-info", "-G", "-g", "--device-debug", NULL};
    const char **made = malloc(((size_t)(count > 0 ? count : 0) + 2) * sizeof *made);
    if (!made) return NULL;
    int add = 1, at = 0;
    for (int i = 0; i < count; i++)
        if (options[i] && has(options[i], given)) add = 0;
    if (add) made[at++] = "-lineinfo";
    for (int i = 0; i < count; i++) made[at++] = options[i];
    *new_count = at;
    return made;
}

static int compile(void *program, int count, const char *const *options) {
    int new_count;
    const char **changed = with_lineinfo(count, options, &new_count);
    if (!changed) return OUT_OF_MEMORY;
    int code = real_compile(program, new_count, changed);
    free(changed);
    return code;
}

static int get_cubin(void *program, char *to) {
    int code = real_get_cubin(program, to);
    size_t cubin_bytes = 0, ptx_bytes = 0;
    if (code || real_cubin_size(program, &cubin_bytes) || real_ptx_size(program, &ptx_bytes) || ptx_bytes < 2) return code;
    char *ptx = malloc(ptx_bytes);
    if (ptx && real_get_ptx(program, ptx) == 0) note_ptx(to, cubin_bytes, &(struct text){ptx, ptx_bytes - 1}, 1);
    free(ptx);
    return code;
}

static int find_functions(const struct link_map *map) {
    if (library) return library == map;
    real_compile = (compile_function *)exported_function(map, "nvrtcCompileProgram");
    real_get_cubin = (get_function *)exported_function(map, "nvrtcGetCUBIN");
    real_get_ptx = (get_function *)exported_function(map, "nvrtcGetPTX");
    real_cubin_size = (size_function *)exported_function(map, "nvrtcGetCUBINSize");
    real_ptx_size = (size_function *)exported_function(map, "nvrtcGetPTXSize");
    if (!real_compile || !real_get_cubin || !real_get_ptx || !real_cubin_size || !real_ptx_size) return 0;
    library = map;
    return 1;
}

uintptr_t wrap_compiler(const struct link_map *map, const char *name) {
    if (strcmp(name, "nvrtcCompileProgram") == 0) return find_functions(map) ? (uintptr_t)compile : 0;
    if (strcmp(name, "nvrtcGetCUBIN") == 0) return find_functions(map) ? (uintptr_t)get_cubin : 0;
    return 0;
}

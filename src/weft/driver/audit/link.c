/* nvJitLink: -lineinfo, and the PTX of a linked cubin is noted. A cubin that was linked from PTX contains none; one that was
 * linked from LTO-IR contains it without source lines, so the link is repeated with -ptx, which gives the text.
 *
 * One nvJitLink of a process is wrapped, as of NVRTC. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit.h"

enum { PTX = 2, LTO_IR = 3 }; /* nvJitLinkInputType */

typedef int create_function(void **handle, uint32_t count, const char **options);
typedef int data_function(void *handle, int type, const void *bytes, size_t size, const char *name);
typedef int file_function(void *handle, int type, const char *path);
typedef int handle_function(void *handle);
typedef int get_function(void *handle, void *to);
typedef int size_function(void *handle, size_t *bytes);
typedef int destroy_function(void **handle);

static struct {
    create_function *create;
    data_function *add_data;
    file_function *add_file;
    handle_function *complete;
    get_function *get_cubin, *get_ptx;
    size_function *cubin_size, *ptx_size;
    destroy_function *destroy;
} real;

struct input {
    struct input *next;
    int type;
    size_t size;
    char bytes[];
};

struct link {
    struct link *next;
    void *handle;
    uint32_t option_count;
    char **options;
    struct input *inputs;
};

static const struct link_map *library;
static struct link *links;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct link *find_link(void *handle) {
    for (struct link *link = links; link; link = link->next)
        if (link->handle == handle) return link;
    return NULL;
}

static void free_link(struct link *link) {
    for (struct input *input = link->inputs, *next; input; input = next) {
        next = input->next;
        free(input);
    }
    for (uint32_t i = 0; i < link->option_count; i++) free(link->options[i]);
    free(link->options);
    free(link);
}

static int create(void **handle, uint32_t count, const char **options) {
    int new_count;
    const char **changed = with_lineinfo((int)count, options, &new_count);
    struct link *link = calloc(1, sizeof *link);
    int code = real.create(handle, changed ? (uint32_t)new_count : count, changed ? changed : options);
    if (code == 0 && changed && link) {
        link->options = calloc((size_t)new_count, sizeof *link->options);
        for (int i = 0; link->options && i < new_count; i++) link->options[link->option_count++] = strdup(changed[i]);
        link->handle = *handle;
        pthread_mutex_lock(&lock);
        link->next = links;
        links = link;
        pthread_mutex_unlock(&lock);
    } else {
        free(link);
    }
    free(changed);
    return code;
}

static void keep_input(void *handle, int type, const void *bytes, size_t size) {
    struct input *input = malloc(sizeof *input + size);
    if (!input) return;
    *input = (struct input){.type = type, .size = size};
    memcpy(input->bytes, bytes, size);
    pthread_mutex_lock(&lock);
    struct link *link = find_link(handle);
    struct input **end = link ? &link->inputs : NULL;
    while (end && *end) end = &(*end)->next;
    if (end)
        *end = input;
    else
        free(input);
    pthread_mutex_unlock(&lock);
}

static int add_data(void *handle, int type, const void *bytes, size_t size, const char *name) {
    int code = real.add_data(handle, type, bytes, size, name);
    if (code == 0) keep_input(handle, type, bytes, size);
    return code;
}

/* Reads a file, so that one list has all inputs. */
static void *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    long end = ftell(file);
    rewind(file);
    char *bytes = end > 0 ? malloc((size_t)end) : NULL;
    *size = bytes ? fread(bytes, 1, (size_t)end, file) : 0;
    fclose(file);
    return bytes;
}

static int add_file(void *handle, int type, const char *path) {
    int code = real.add_file(handle, type, path);
    size_t size;
    void *bytes = code ? NULL : read_file(path, &size);
    if (bytes) keep_input(handle, type, bytes, size);
    free(bytes);
    return code;
}

/* Returns the PTX that the LTO-IR among the inputs becomes. The caller frees it. */
static char *ptx_of_lto(const struct link *link, size_t *size) {
    const char **options = malloc((link->option_count + 1) * sizeof *options);
    char *text = NULL;
    void *second = NULL;
    if (!options) return NULL;
    for (uint32_t i = 0; i < link->option_count; i++) options[i] = link->options[i];
    options[link->option_count] = "-ptx";
    int failed = real.create(&second, link->option_count + 1, options);
    free(options);
    if (failed) return NULL;
    for (const struct input *input = link->inputs; input && !failed; input = input->next)
        if (input->type == LTO_IR) failed = real.add_data(second, LTO_IR, input->bytes, input->size, "lto");
    if (!failed && real.complete(second) == 0 && real.ptx_size(second, size) == 0 && *size > 1) {
        text = malloc(*size);
        if (text && real.get_ptx(second, text) != 0) {
            free(text);
            text = NULL;
        }
    }
    real.destroy(&second);
    return text;
}

static void note_link(const struct link *link, const void *cubin, size_t cubin_bytes) {
    struct text texts[64];
    size_t count = 0, lto_bytes = 0;
    char *lto_text = NULL;
    int has_lto = 0;
    for (const struct input *input = link->inputs; input; input = input->next) {
        if (input->type == LTO_IR) has_lto = 1;
        if (input->type != PTX) continue;
        if (count == 63) return;
        texts[count++] = (struct text){input->bytes, strnlen(input->bytes, input->size)};
    }
    if (has_lto) {
        lto_text = ptx_of_lto(link, &lto_bytes);
        if (!lto_text) return; /* the PTX inside the cubin is used, without source lines */
        texts[count++] = (struct text){lto_text, strnlen(lto_text, lto_bytes)};
    }
    note_ptx(cubin, cubin_bytes, texts, count);
    free(lto_text);
}

static int get_cubin(void *handle, void *to) {
    int code = real.get_cubin(handle, to);
    size_t bytes = 0;
    if (code || real.cubin_size(handle, &bytes)) return code;
    pthread_mutex_lock(&lock);
    const struct link *link = find_link(handle);
    if (link) note_link(link, to, bytes);
    pthread_mutex_unlock(&lock);
    return code;
}

static int destroy(void **handle) {
    pthread_mutex_lock(&lock);
    for (struct link **at = &links; handle && *at; at = &(*at)->next)
        if ((*at)->handle == *handle) {
            struct link *gone = *at;
            *at = gone->next;
            free_link(gone);
            break;
        }
    pthread_mutex_unlock(&lock);
    return real.destroy(handle);
}

static int find_functions(const struct link_map *map) {
    if (library) return library == map;
    real.create = (create_function *)exported_function(map, "nvJitLinkCreate");
    real.add_data = (data_function *)exported_function(map, "nvJitLinkAddData");
    real.add_file = (file_function *)exported_function(map, "nvJitLinkAddFile");
    real.complete = (handle_function *)exported_function(map, "nvJitLinkComplete");
    real.get_cubin = (get_function *)exported_function(map, "nvJitLinkGetLinkedCubin");
    real.get_ptx = (get_function *)exported_function(map, "nvJitLinkGetLinkedPtx");
    real.cubin_size = (size_function *)exported_function(map, "nvJitLinkGetLinkedCubinSize");
    real.ptx_size = (size_function *)exported_function(map, "nvJitLinkGetLinkedPtxSize");
    real.destroy = (destroy_function *)exported_function(map, "nvJitLinkDestroy");
    if (!real.create || !real.add_data || !real.add_file || !real.complete || !real.get_cubin || !real.get_ptx ||
        !real.cubin_size || !real.ptx_size || !real.destroy)
        return 0;
    library = map;
    return 1;
}

static const struct {
    const char *name;
    uintptr_t wrapper;
} wrappers[] = {
    {"nvJitLinkCreate", (uintptr_t)create},
    {"nvJitLinkAddData", (uintptr_t)add_data},
    {"nvJitLinkAddFile", (uintptr_t)add_file},
    {"nvJitLinkGetLinkedCubin", (uintptr_t)get_cubin},
    {"nvJitLinkDestroy", (uintptr_t)destroy},
};

/* A program that was compiled with the header calls __nvJitLinkCreate_13_0, one that asks dlsym nvJitLinkCreate. */
static int same_function(const char *name, const char *plain) {
    size_t length = strlen(plain);
    if (strncmp(name, "__", 2) == 0) name += 2;
    if (strncmp(name, plain, length) != 0) return 0;
    return name[length] == 0 || (name[length] == '_' && name[length + 1] >= '0' && name[length + 1] <= '9');
}

uintptr_t wrap_linker(const struct link_map *map, const char *name) {
    for (size_t i = 0; i < sizeof wrappers / sizeof wrappers[0]; i++)
        if (same_function(name, wrappers[i].name)) return find_functions(map) ? wrappers[i].wrapper : 0;
    return 0;
}

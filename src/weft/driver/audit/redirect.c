/* A CUDA runtime inside a program (nvcc's default, the wheels of CuPy): each of its functions begins with a jump to the
 * function of that name in Weft's libcudart, which is preloaded. The symbol table of the file tells where they are; a file
 * without one keeps its runtime, which the driver refuses by the file's name when it asks for a private table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "audit.h"

#define MOST_NOTED 4096

static const struct link_map *noted[MOST_NOTED];
static size_t noted_count;
static const struct link_map *runtimes[2]; /* of CUDA 12 and 13 */

/* Returns 12 or 13 for a file libcudart.so.12 or .13, otherwise 0. */
static int runtime_version(const char *path) {
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    if (strncmp(file, "libcudart.so.1", 14) != 0 || (file[15] && file[15] != '.')) return 0;
    return file[14] == '2' ? 12 : file[14] == '3' ? 13 : 0;
}

const char *our_runtime(const char *path) {
    static char ours[2][4096];
    const char *folder = getenv("WEFT_DRIVER_FOLDER");
    int version = folder ? runtime_version(path) : 0;
    if (!version) return NULL;
    char *found = ours[version - 12];
    snprintf(found, sizeof ours[0], "%s/libcudart.so.%d", folder, version);
    return found;
}

void note_object(const struct link_map *map) {
    const char *ours = our_runtime(map->l_name);
    if (ours && strcmp(ours, map->l_name) == 0)
        runtimes[runtime_version(ours) - 12] = map;
    else if (noted_count < MOST_NOTED)
        noted[noted_count++] = map;
}

void forget_object(const struct link_map *map) {
    for (size_t i = 0; i < noted_count; i++)
        if (noted[i] == map) noted[i] = NULL;
}

static _Noreturn void stop(const char *path, const char *name) {
    fprintf(stderr, "weft: refused: the CUDA runtime in %s: %s cannot be replaced; compile with --cudart shared\n", path, name);
    _exit(EXIT_REFUSED);
}

static void write_jump(const char *path, const char *name, uint8_t *at, size_t room, uintptr_t target) {
#if defined(__x86_64__)
    uint8_t jump[14] = {0xFF, 0x25, 0, 0, 0, 0}; /* jmp [rip + 0], then the address */
    memcpy(jump + 6, &target, sizeof target);
#elif defined(__aarch64__)
    uint32_t code[2] = {0x58000051, 0xD61F0220}; /* ldr x17, pc + 8; br x17 */
    uint8_t jump[16];
    memcpy(jump, code, sizeof code);
    memcpy(jump + 8, &target, sizeof target);
#else
#error "no jump for this machine"
#endif
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)at & ~(page - 1);
    size_t span = ((uintptr_t)at + sizeof jump + page - 1 - start) & ~(page - 1);
    if (room < sizeof jump || mprotect((void *)start, span, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) stop(path, name);
    memcpy(at, jump, sizeof jump);
    mprotect((void *)start, span, PROT_READ | PROT_EXEC);
    __builtin___clear_cache((char *)at, (char *)at + sizeof jump);
}

/* Returns the name of a function that the file defines, NULL for any other symbol. */
static const char *defined_function(const struct file_symbols *file, const Elf64_Sym *symbol) {
    if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || symbol->st_name >= file->names_bytes) return NULL;
    const char *name = file->names + symbol->st_name;
    return strncmp(name, "cuda", 4) == 0 || strncmp(name, "__cuda", 6) == 0 ? name : NULL;
}

/* Returns our runtime of the version that is in the file, NULL if none is. A program that only calls a shared runtime does
 * not define these names; the second one was in CUDA 12 and not later. */
static const struct link_map *runtime_for(const struct file_symbols *file) {
    int has_runtime = 0, is_12 = 0;
    for (size_t i = 0; i < file->count; i++) {
        const char *name = defined_function(file, &file->symbols[i]);
        has_runtime |= name && strcmp(name, "__cudaRegisterFatBinary") == 0;
        is_12 |= name && strcmp(name, "cudaGetDeviceProperties_v2") == 0;
    }
    return has_runtime ? runtimes[is_12 ? 0 : 1] : NULL;
}

/* Compilers place functions at multiples of 16 bytes: what is between two of them is unused. */
static size_t room_of(const Elf64_Sym *symbol) { return symbol->st_value % 16 ? symbol->st_size : (symbol->st_size + 15) / 16 * 16; }

static void redirect(const struct link_map *map) {
    const char *path = map->l_name[0] ? map->l_name : "/proc/self/exe";
    struct file_symbols file;
    if (!open_symbols(path, &file)) return;
    const struct link_map *runtime = runtime_for(&file);
    for (size_t i = 0; runtime && i < file.count; i++) {
        const Elf64_Sym *symbol = &file.symbols[i];
        const char *name = defined_function(&file, symbol);
        uintptr_t target = name ? exported_function(runtime, name) : 0;
        if (target) write_jump(path, name, (uint8_t *)map->l_addr + symbol->st_value, room_of(symbol), target);
    }
    close_symbols(&file);
}

void redirect_runtimes(void) {
    for (size_t i = 0; i < noted_count; i++)
        if (noted[i]) redirect(noted[i]);
    noted_count = 0;
}

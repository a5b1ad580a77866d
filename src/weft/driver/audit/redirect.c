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
static const struct link_map *runtime;

static int is_our_runtime(const char *path) {
    const char *folder = getenv("WEFT_DRIVER_FOLDER");
    size_t length = folder ? strlen(folder) : 0;
    return length && strncmp(path, folder, length) == 0 && strncmp(path + length, "/libcudart.so", 13) == 0;
}

void note_object(const struct link_map *map) {
    if (!runtime && is_our_runtime(map->l_name))
        runtime = map;
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

static int is_runtime_name(const char *name) { return strncmp(name, "cuda", 4) == 0 || strncmp(name, "__cuda", 6) == 0; }

/* A program that only calls a shared runtime has no definitions of these names. */
static int has_runtime(const struct file_symbols *file) {
    for (size_t i = 0; i < file->count; i++) {
        const Elf64_Sym *symbol = &file->symbols[i];
        if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || symbol->st_name >= file->names_bytes) continue;
        if (strcmp(file->names + symbol->st_name, "__cudaRegisterFatBinary") == 0 || strcmp(file->names + symbol->st_name, "cudaMalloc") == 0) return 1;
    }
    return 0;
}

static void redirect(const struct link_map *map) {
    const char *path = map->l_name[0] ? map->l_name : "/proc/self/exe";
    struct file_symbols file;
    if (!open_symbols(path, &file)) return;
    for (size_t i = 0; has_runtime(&file) && i < file.count; i++) {
        const Elf64_Sym *symbol = &file.symbols[i];
        if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || symbol->st_name >= file.names_bytes) continue;
        const char *name = file.names + symbol->st_name;
        uintptr_t target = is_runtime_name(name) ? exported_function(runtime, name) : 0;
        if (target) write_jump(path, name, (uint8_t *)map->l_addr + symbol->st_value, symbol->st_size, target);
    }
    close_symbols(&file);
}

void redirect_runtimes(void) {
    if (!runtime) return;
    for (size_t i = 0; i < noted_count; i++)
        if (noted[i]) redirect(noted[i]);
    noted_count = 0;
}

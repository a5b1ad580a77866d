/* The audit library of `weft exec`, loaded by LD_AUDIT: the dynamic linker tells it of every library and every name that
 * a program binds, dlsym included. It lives in a namespace with a C library of its own, and starts no thread.
 *
 * It does two things: compilers that the program calls keep the PTX in the machine code they make (compile.c, link.c), and
 * a CUDA runtime inside the program is replaced by Weft's (redirect.c). */
#ifndef WEFT_AUDIT_H
#define WEFT_AUDIT_H

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>

#define EXIT_REFUSED 3

/* ---- compilers (compile.c, link.c) ---- */

/* Each returns what the program is to call instead of a function, 0 to leave it. `map` is the library that defines it. */
uintptr_t wrap_compiler(const struct link_map *map, const char *name);
uintptr_t wrap_linker(const struct link_map *map, const char *name);
/* Returns a copy of the options with -lineinfo before them, unless they ask for it already or for -G, and with room for
 * one more. The caller frees it. */
const char **with_lineinfo(int count, const char *const *options, int *new_count);

/* ---- PTX of a cubin, for the server (note.c) ---- */

struct text {
    const char *bytes;
    size_t size;
};
/* Writes a file in WEFT_DRIVER_NOTES that has a cubin and the PTX it was made of. */
void note_ptx(const void *cubin, size_t cubin_bytes, const struct text *texts, size_t count);

/* ---- the runtime (redirect.c) ---- */

/* Returns the path of our runtime for that of a libcudart.so.12 or .13, NULL for any other library. */
const char *our_runtime(const char *path);
/* Notes a library that was loaded; nothing is read before `redirect_runtimes`. */
void note_object(const struct link_map *map);
void forget_object(const struct link_map *map);
/* Writes a jump to our runtime at each function of a runtime inside the objects noted since the last call. */
void redirect_runtimes(void);

/* ---- symbols of files and of loaded libraries (symbols.c) ---- */

struct file_symbols {
    const Elf64_Sym *symbols;
    size_t count;
    const char *names;
    size_t names_bytes;
    void *mapped;
    size_t mapped_bytes;
};

/* Maps a file and finds its symbol table; returns 0 if it is stripped or no ELF file of this machine. */
int open_symbols(const char *path, struct file_symbols *found);
void close_symbols(struct file_symbols *symbols);
/* Returns the address of a function that a loaded library exports, 0 if it has none of that name. */
uintptr_t exported_function(const struct link_map *map, const char *name);

#endif

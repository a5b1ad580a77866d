/* What the dynamic linker calls. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "audit.h"

#define EXPORT __attribute__((visibility("default")))

static const char *file_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int is_compiler(const char *path) {
    const char *file = file_of(path);
    return strncmp(file, "libnvrtc.so", 11) == 0 || strncmp(file, "libnvJitLink.so", 15) == 0;
}

/* The linker refuses a library that asks for a newer interface than its own; the parts used here are in all. */
EXPORT unsigned la_version(unsigned version) { return version; }

/* A runtime that is found by RPATH or loaded by its path is ours, too. */
EXPORT char *la_objsearch(const char *name, uintptr_t *cookie, unsigned flag) {
    const char *ours = flag == LA_SER_ORIG ? our_runtime(name) : NULL;
    return (char *)(ours ? ours : name);
}

/* Bindings are reported only if both sides ask for it: every library may call a compiler, so only those are answered. */
EXPORT unsigned la_objopen(struct link_map *map, Lmid_t namespace, uintptr_t *cookie) {
    if (namespace != LM_ID_BASE) return 0;
    note_object(map);
    return is_compiler(map->l_name) ? LA_FLG_BINDTO | LA_FLG_BINDFROM : LA_FLG_BINDFROM;
}

EXPORT unsigned la_objclose(uintptr_t *cookie) {
    forget_object((const struct link_map *)*cookie);
    return 0;
}

/* All libraries of this step are mapped, none of their constructors has run. */
EXPORT void la_activity(uintptr_t *cookie, unsigned flag) {
    if (flag == LA_ACT_CONSISTENT) redirect_runtimes();
}

EXPORT uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned number, uintptr_t *from, uintptr_t *to, unsigned *flags, const char *name) {
    const struct link_map *map = (const struct link_map *)*to; /* what a cookie is unless la_objopen changes it */
    uintptr_t real = symbol->st_value;
    uintptr_t wrapped = wrap_compiler(map, name);
    if (!wrapped) wrapped = wrap_linker(map, name);
    return wrapped ? wrapped : real;
}

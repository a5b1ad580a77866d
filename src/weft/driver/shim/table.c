/* cuGetProcAddress' table, and the entry points without implementation: each is a function that refuses by its name. */
#include <string.h>

#include "shim.h"

#define ROW(name, version, symbol) void symbol(void);
#include "names.h"
#undef ROW

/* Not of CUDA's API: the stand-in runtime next to this library refuses its own entry points by it. */
EXPORT int weftRefuse(const char *name, const char *why);
int weftRefuse(const char *name, const char *why) {
    struct call call __attribute__((cleanup(end_call))) = {.name = name};
    if (begin_call(&call, NOTHING) != SUCCESS) return call.code;
    RETURN(refuse(name, why));
}

static int missing(const char *name) { return weftRefuse(name, "this entry point of the CUDA driver has no implementation"); }

/* A program that was linked with a header's newer form of the name finds it, too. */
#define MISSING(name)                                                                                                \
    EXPORT int name(void);                                                                                           \
    EXPORT int name##_v2(void);                                                                                      \
    EXPORT int name##_v3(void);                                                                                      \
    int name(void) { return missing(#name); }                                                                        \
    int name##_v2(void) { return missing(#name); }                                                                   \
    int name##_v3(void) { return missing(#name); }
#include "missing.h"
#undef MISSING

struct row {
    const char *name;
    int version;
    void (*function)(void);
};

static const struct row rows[] = {
#define ROW(name, version, symbol) {#name, version, symbol},
#include "names.h"
#undef ROW
#define MISSING(name) {#name, 0, (void (*)(void))name},
#include "missing.h"
#undef MISSING
};

enum { FOUND, NAME_NOT_FOUND, VERSION_TOO_LOW };

void *find_entry(const char *name, int version, int *status) {
    const struct row *best = NULL;
    *status = NAME_NOT_FOUND; /* newer than this driver, as far as the program can tell */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        if (strcmp(row->name, name) != 0) continue;
        if (*status != FOUND) *status = VERSION_TOO_LOW;
        if (row->version > version || (best && row->version < best->version)) continue;
        best = row;
        *status = FOUND;
    }
    return best ? (void *)best->function : NULL;
}

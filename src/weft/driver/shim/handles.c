/* Handles: contexts, streams, events, modules, functions. All come from one table, so that any pointer can be
 * tested for being a live handle of the right kind; a destroyed one is found out until its place is used again. */
#include <stdlib.h>
#include <string.h>

#include "shim.h"

#define MOST (1u << 19)

static struct handle table[MOST]; /* pages are committed when they are used */
static uint32_t used;
static struct handle *free_list;

struct handle *new_handle(enum kind kind) {
    struct handle *made = free_list;
    if (made) {
        free_list = made->owner;
    } else if (used < MOST) {
        made = &table[used++];
    } else {
        return NULL;
    }
    memset(made, 0, sizeof *made);
    made->kind = kind;
    return made;
}

void free_handle(struct handle *handle) {
    free(handle->data);
    memset(handle, 0, sizeof *handle);
    handle->owner = free_list;
    free_list = handle;
}

int is_handle(const void *pointer, enum kind kind) {
    uintptr_t at = (uintptr_t)pointer, start = (uintptr_t)table;
    if (at < start || at >= start + (uintptr_t)used * sizeof *table || (at - start) % sizeof *table) return 0;
    return ((const struct handle *)pointer)->kind == kind;
}

void each_handle(enum kind kind, void (*visit)(struct handle *, void *), void *with) {
    for (uint32_t number = 0; number < used; number++)
        if (table[number].kind == kind) visit(&table[number], with);
}

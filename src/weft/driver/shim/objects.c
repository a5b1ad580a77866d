/* User objects: what a program wants to be destroyed when the last graph that uses it is gone. */
#include <stdlib.h>
#include <string.h>

#include "work.h"

enum { MOVE = 1, NO_DESTRUCTOR_SYNC = 1 };

struct object {
    void *data;
    void (*destroy)(void *);
    uint64_t references;
};

static struct object *object_of(struct handle *handle) { return handle->data; }

/* The destructor runs when the call has released its lock: it may need a lock of the program's own. */
static void drop_references(struct handle *handle, uint64_t count) {
    struct object *object = object_of(handle);
    object->references -= count;
    if (object->references) return;
    call_later(object->destroy, object->data);
    free_handle(handle);
}

EXPORT int cuUserObjectCreate(struct handle **made, void *data, void (*destroy)(void *), unsigned references, unsigned flags) {
    CALL(INITIALISED, made, data, destroy, references, flags);
    if (!made || !destroy || !references || flags != NO_DESTRUCTOR_SYNC) RETURN(INVALID_VALUE);
    struct handle *handle = new_handle(OBJECT);
    if (!handle || !(handle->data = calloc(1, sizeof(struct object)))) RETURN(OUT_OF_MEMORY);
    *object_of(handle) = (struct object){data, destroy, references};
    *made = handle;
    RETURN(SUCCESS);
}

EXPORT int cuUserObjectRetain(struct handle *object, unsigned count) {
    CALL(INITIALISED, object, count);
    if (!is_handle(object, OBJECT) || !count) RETURN(INVALID_VALUE);
    object_of(object)->references += count;
    RETURN(SUCCESS);
}

EXPORT int cuUserObjectRelease(struct handle *object, unsigned count) {
    CALL(INITIALISED, object, count);
    if (!is_handle(object, OBJECT) || !count || count > object_of(object)->references) RETURN(INVALID_VALUE);
    drop_references(object, count);
    RETURN(SUCCESS);
}

/* A graph lists an object once per reference. */
static int list_object(struct graph *graph, struct handle *object, size_t count) {
    struct handle **larger = realloc(graph->objects, (graph->object_count + count) * sizeof *larger);
    if (!larger) return OUT_OF_MEMORY;
    graph->objects = larger;
    while (count--) larger[graph->object_count++] = object;
    return SUCCESS;
}

EXPORT int cuGraphRetainUserObject(struct handle *graph, struct handle *object, unsigned count, unsigned flags) {
    CALL(INITIALISED, graph, object, count, flags);
    if (!is_handle(graph, GRAPH) || !is_handle(object, OBJECT) || !count || flags > MOVE) RETURN(INVALID_VALUE);
    if (flags == MOVE && count > object_of(object)->references) RETURN(INVALID_VALUE);
    int code = list_object(graph_of(graph), object, count);
    if (code == SUCCESS && flags != MOVE) object_of(object)->references += count;
    RETURN(code);
}

static size_t listed(const struct graph *graph, const struct handle *object) {
    size_t found = 0;
    for (size_t i = 0; i < graph->object_count; i++) found += graph->objects[i] == object;
    return found;
}

EXPORT int cuGraphReleaseUserObject(struct handle *handle, struct handle *object, unsigned count) {
    CALL(INITIALISED, handle, object, count);
    if (!is_handle(handle, GRAPH) || !is_handle(object, OBJECT) || !count) RETURN(INVALID_VALUE);
    struct graph *graph = graph_of(handle);
    if (listed(graph, object) < count) RETURN(INVALID_VALUE);
    size_t kept = 0, dropped = 0;
    for (size_t i = 0; i < graph->object_count; i++) {
        if (graph->objects[i] == object && dropped < count)
            dropped++;
        else
            graph->objects[kept++] = graph->objects[i];
    }
    graph->object_count = kept;
    drop_references(object, count);
    RETURN(SUCCESS);
}

void drop_objects(struct graph *graph) {
    for (size_t i = 0; i < graph->object_count; i++) drop_references(graph->objects[i], 1);
    free(graph->objects);
    graph->objects = NULL;
    graph->object_count = 0;
}

int share_objects(struct graph *to, const struct graph *from) {
    for (size_t i = 0; i < from->object_count; i++) {
        int code = list_object(to, from->objects[i], 1);
        if (code != SUCCESS) return code;
        object_of(from->objects[i])->references++;
    }
    return SUCCESS;
}

/* Memory of graphs: placed when a node is made, live between a launch and a free, released with the last node. */
#include "shim.h"

static uint64_t graph_bytes[2], graph_most[2]; /* used by launches, reserved by nodes */

static void count_graph_memory(int which, int64_t bytes) {
    graph_bytes[which] += (uint64_t)bytes;
    if (graph_bytes[which] > graph_most[which]) graph_most[which] = graph_bytes[which];
}

static struct allocation *graph_allocation(uint64_t address) {
    struct allocation *found = allocation_at(address);
    return found && found->of_graph ? found : NULL;
}

static int release_unused(struct allocation *found) {
    if (found->nodes || found->live) return SUCCESS;
    uint64_t address = found->address;
    count_graph_memory(1, -(int64_t)found->bytes);
    drop_allocation(address);
    return (int)ask((struct request){.kind = RELEASE, .argument = {address}}, NULL, NULL).code;
}

int allocate_graph_memory(uint64_t *address, uint64_t bytes, int type) {
    int code = allocate_memory(address, bytes, type, 0);
    if (code != SUCCESS) return code;
    struct allocation *made = allocation_at(*address);
    made->of_graph = made->nodes = 1;
    count_graph_memory(1, (int64_t)bytes);
    return SUCCESS;
}

void keep_graph_memory(uint64_t address) {
    struct allocation *found = graph_allocation(address);
    if (found) found->nodes++;
}

void drop_graph_memory(uint64_t address) {
    struct allocation *found = graph_allocation(address);
    if (!found) return;
    found->nodes--;
    release_unused(found);
}

int is_graph_memory(uint64_t address) { return graph_allocation(address) != NULL; }

int use_graph_memory(uint64_t address) {
    struct allocation *found = graph_allocation(address);
    if (!found || found->live) return INVALID_VALUE; /* the last launch's memory must be freed first */
    found->live = 1;
    count_graph_memory(0, (int64_t)found->bytes);
    return SUCCESS;
}

int unuse_graph_memory(uint64_t address) {
    struct allocation *found = graph_allocation(address);
    if (!found || !found->live) return INVALID_VALUE;
    found->live = 0;
    count_graph_memory(0, -(int64_t)found->bytes);
    return release_unused(found);
}

/* Attributes: used now, used at most, reserved now, reserved at most. */
EXPORT int cuDeviceGetGraphMemAttribute(int which, int attribute, uint64_t *value) {
    CALL(INITIALISED, which, attribute, value);
    if (which != 0) RETURN(INVALID_DEVICE);
    if (!value || attribute < 0 || attribute > 3) RETURN(INVALID_VALUE);
    *value = attribute % 2 ? graph_most[attribute / 2] : graph_bytes[attribute / 2];
    RETURN(SUCCESS);
}

EXPORT int cuDeviceSetGraphMemAttribute(int which, int attribute, const uint64_t *value) {
    CALL(INITIALISED, which, attribute, value);
    if (which != 0) RETURN(INVALID_DEVICE);
    if (!value || *value || (attribute != 1 && attribute != 3)) RETURN(INVALID_VALUE); /* the highest can be reset */
    graph_most[attribute / 2] = graph_bytes[attribute / 2];
    RETURN(SUCCESS);
}

EXPORT int cuDeviceGraphMemTrim(int which) {
    CALL(INITIALISED, which);
    RETURN(which ? INVALID_DEVICE : SUCCESS); /* nothing is kept beyond the nodes */
}

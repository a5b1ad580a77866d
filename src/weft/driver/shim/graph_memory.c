/* Memory of graphs: placed when a node is made, live between a launch and a free, released with the last node. */
#include "shim.h"

static uint64_t graph_bytes[MOST_DEVICES][2], graph_most[MOST_DEVICES][2]; /* used by launches, reserved */
static uint64_t idle_bytes[MOST_DEVICES]; /* reserved and without a node: until they are trimmed, or used again */

static void count_graph_memory(int which, int kind, int64_t bytes) {
    uint64_t *now = &graph_bytes[which][kind], *most = &graph_most[which][kind];
    *now += (uint64_t)bytes;
    if (*now > *most) *most = *now;
}

static struct allocation *graph_allocation(uint64_t address) {
    struct allocation *found = allocation_at(address);
    return found && found->of_graph ? found : NULL;
}

/* Kernels reach the memory between the node that allocates it and the one that frees it. Memory of the host that several
 * devices reach stays visible. */
static int show(const struct allocation *found, int visible) {
    if (found->type != DEVICE_MEMORY) return SUCCESS;
    return (int)ask((struct request){.kind = SHOW, .argument = {found->address, (uint64_t)visible}}, NULL, NULL).code;
}

static int release_unused(struct allocation *found) {
    if (found->nodes || found->live) return SUCCESS;
    uint64_t address = found->address;
    idle_bytes[found->device] += found->bytes;
    drop_allocation(address);
    return (int)ask((struct request){.kind = RELEASE, .argument = {address}}, NULL, NULL).code;
}

int allocate_graph_memory(uint64_t *address, uint64_t bytes, int type, int which) {
    int code = allocate_on(which, address, bytes, type, 0);
    if (code != SUCCESS) return code;
    struct allocation *made = allocation_at(*address);
    made->of_graph = made->nodes = 1;
    uint64_t again = bytes < idle_bytes[which] ? bytes : idle_bytes[which];
    idle_bytes[which] -= again;
    count_graph_memory(which, 1, (int64_t)(bytes - again));
    return show(made, 0);
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
    count_graph_memory(found->device, 0, (int64_t)found->bytes);
    return show(found, 1);
}

int unuse_graph_memory(uint64_t address) {
    struct allocation *found = graph_allocation(address);
    if (!found || !found->live) return INVALID_VALUE;
    found->live = 0;
    count_graph_memory(found->device, 0, -(int64_t)found->bytes);
    int code = show(found, 0);
    return code == SUCCESS ? release_unused(found) : code;
}

/* Attributes: used now, used at most, reserved now, reserved at most. */
EXPORT int cuDeviceGetGraphMemAttribute(int which, int attribute, uint64_t *value) {
    CALL(INITIALISED, which, attribute, value);
    if (!is_device(which)) RETURN(INVALID_DEVICE);
    if (!value || attribute < 0 || attribute > 3) RETURN(INVALID_VALUE);
    *value = attribute % 2 ? graph_most[which][attribute / 2] : graph_bytes[which][attribute / 2];
    RETURN(SUCCESS);
}

EXPORT int cuDeviceSetGraphMemAttribute(int which, int attribute, const uint64_t *value) {
    CALL(INITIALISED, which, attribute, value);
    if (!is_device(which)) RETURN(INVALID_DEVICE);
    if (!value || *value || (attribute != 1 && attribute != 3)) RETURN(INVALID_VALUE); /* the highest can be reset */
    graph_most[which][attribute / 2] = graph_bytes[which][attribute / 2];
    RETURN(SUCCESS);
}

EXPORT int cuDeviceGraphMemTrim(int which) {
    CALL(INITIALISED, which);
    if (!is_device(which)) RETURN(INVALID_DEVICE);
    count_graph_memory(which, 1, -(int64_t)idle_bytes[which]);
    idle_bytes[which] = 0;
    RETURN(SUCCESS);
}

/* Conditions of a graph: numbers that kernels set (cudaGraphSetConditional) and that decide which graphs of a
 * conditional node run. The handle is a number; it stays valid as long as the program runs, because a graph that was
 * instantiated may outlive the one that the handle was created for. */
#include <stdio.h>
#include <stdlib.h>

#include "work.h"

enum { ASSIGN_DEFAULT = 1 };

struct condition {
    struct handle *graph; /* for which it was created, until that is destroyed */
    struct handle *context;
    unsigned flags, first, value;
    int used; /* by a node */
};

static struct condition *conditions; /* handle n is at n - 1 */
static uint64_t conditions_made;

static struct condition *condition_of(uint64_t condition) { return condition && condition <= conditions_made ? &conditions[condition - 1] : NULL; }

EXPORT int cuGraphConditionalHandleCreate(uint64_t *made, struct handle *graph, struct handle *context, unsigned first, unsigned flags) {
    CALL(CURRENT, made, graph, context, first, flags);
    if (!made || !is_handle(graph, GRAPH) || flags > ASSIGN_DEFAULT || (context && !is_handle(context, CONTEXT))) RETURN(INVALID_VALUE);
    struct condition *larger = realloc(conditions, (conditions_made + 1) * sizeof *larger);
    if (!larger) RETURN(OUT_OF_MEMORY);
    conditions = larger;
    conditions[conditions_made++] = (struct condition){graph, context ? context : current_context(), flags, first, 0, 0};
    *made = conditions_made;
    RETURN(SUCCESS);
}

/* Whether a graph is another, or is in one of its nodes. */
static int is_in(struct handle *graph, const struct handle *outer) {
    while (graph != outer && graph_of(graph)->parent) graph = graph_of(graph)->parent->owner;
    return graph == outer;
}

int check_condition(const struct condition_work *work, struct handle *graph) {
    static const unsigned most[] = {[IF_ELSE] = 2, [WHILE_LOOP] = 1, [SWITCH_CASE] = 1 << 16};
    const struct condition *condition = condition_of(work->condition);
    if (!condition || condition->used || !condition->graph || !is_in(graph, condition->graph)) return INVALID_VALUE;
    if (work->context && work->context != condition->context) return INVALID_VALUE;
    return work->kind >= IF_ELSE && work->kind <= SWITCH_CASE && work->size && work->size <= most[work->kind] ? SUCCESS : INVALID_VALUE;
}

void use_condition(uint64_t condition) { condition_of(condition)->used = 1; }

int copy_bodies(struct condition_work *to, const struct condition_work *from) {
    int code = SUCCESS;
    if (!(to->bodies = calloc(from->size, sizeof *to->bodies))) return OUT_OF_MEMORY;
    for (unsigned i = 0; code == SUCCESS && i < from->size; i++) {
        if (from->bodies)
            code = clone_graph(&to->bodies[i], from->bodies[i]);
        else
            code = (to->bodies[i] = new_graph()) ? SUCCESS : OUT_OF_MEMORY;
    }
    for (unsigned i = 0; code != SUCCESS && i < from->size; i++)
        if (to->bodies[i]) destroy_graph(to->bodies[i]);
    if (code != SUCCESS) free(to->bodies);
    return code;
}

int allowed_in_body(const struct graph *graph) {
    for (size_t at = 0; at < graph->count; at++) {
        const struct work *work = &node_of(graph->nodes[at])->work;
        struct handle *const *graphs;
        if (work->type == HOST || work->type == WAIT_EVENT || work->type == RECORD_EVENT || work->type == ALLOCATION || work->type == DEALLOCATION) return 0;
        for (size_t i = graphs_in(work, &graphs); i--;)
            if (!allowed_in_body(graph_of(graphs[i]))) return 0;
    }
    return 1;
}

int has_conditions(const struct graph *graph) {
    int found = 0;
    for (size_t at = 0; !found && at < graph->count; at++) found = node_of(graph->nodes[at])->work.type == CONDITIONAL;
    return found;
}

int has_unused_conditions(struct handle *graph) {
    for (uint64_t at = 0; at < conditions_made; at++)
        if (!conditions[at].used && conditions[at].graph && is_in(conditions[at].graph, graph)) return 1;
    return 0;
}

void forget_conditions(struct handle *graph) {
    for (uint64_t at = 0; at < conditions_made; at++)
        if (conditions[at].graph == graph) conditions[at].graph = NULL;
}

/* ---- values ---- */

void start_conditions(const struct graph *graph) {
    for (size_t at = 0; at < graph->count; at++) {
        const struct work *work = &node_of(graph->nodes[at])->work;
        struct handle *const *graphs;
        if (work->type == CONDITIONAL) {
            struct condition *condition = condition_of(work->condition.condition);
            condition->value = condition->flags & ASSIGN_DEFAULT ? condition->first : 0; /* else undefined, as documented */
        }
        for (size_t i = graphs_in(work, &graphs); i--;) start_conditions(graph_of(graphs[i]));
    }
}

uint64_t condition_value(uint64_t condition) { return condition_of(condition)->value; }

int set_conditions(const uint64_t *pairs, size_t count) {
    int code = SUCCESS;
    for (size_t i = 0; i < count; i++) {
        struct condition *condition = condition_of(pairs[2 * i]);
        char why[80];
        if (condition) {
            condition->value = (unsigned)pairs[2 * i + 1];
            continue;
        }
        snprintf(why, sizeof why, "a kernel set the condition %#llx, which is no handle", (unsigned long long)pairs[2 * i]);
        code = refuse("cudaGraphSetConditional", why);
    }
    return code;
}

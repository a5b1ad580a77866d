/* Work: what a stream is given. It runs at once, or is a node of a graph and runs when the graph is launched. */
#ifndef WEFT_WORK_H
#define WEFT_WORK_H

#include "shim.h"

struct graph;

enum work_type { KERNEL, COPY, FILL, HOST, CHILD, EMPTY, WAIT_EVENT, RECORD_EVENT, ALLOCATION = 10, DEALLOCATION, CONDITIONAL = 13 };

struct shape {
    unsigned grid[3], block[3], shared;
};

struct kernel_work {
    struct handle *function;
    uint64_t id; /* of the function: its module may be unloaded before the node runs */
    size_t bytes; /* of the arguments */
    struct shape shape;
    int cooperative, priority, programmatic;
    unsigned cluster; /* CTAs per cluster: x, y and z, a byte each; 0: as the kernel requires */
    int device; /* on which it runs */
    uint8_t *arguments; /* one block of parameters */
    void **pointers;    /* into it, one per parameter: of a node whose parameters were asked for */
};

enum { HOST_TYPE = 1, DEVICE_TYPE, ARRAY_TYPE, UNIFIED_TYPE };

struct copy_3d {
    size_t from_x, from_y, from_z, from_lod;
    int from_type;
    const void *from_host;
    uint64_t from_device;
    void *from_array, *reserved_from;
    size_t from_pitch, from_height, to_x, to_y, to_z, to_lod;
    int to_type;
    void *to_host;
    uint64_t to_device;
    void *to_array, *reserved_to;
    size_t to_pitch, to_height, width, height, depth;
};

struct fill_work {
    uint64_t to;
    size_t pitch;
    unsigned value, element;
    size_t width, height;
};

struct host_work {
    void (*function)(void *);
    void *data;
};

struct memory_work {
    int properties[22]; /* CUmemPoolProps */
    const void *access;
    size_t access_count, bytes;
    uint64_t address;
};

enum { IF_ELSE, WHILE_LOOP, SWITCH_CASE };

/* A node whose graphs run or not, by a condition that kernels set (condition.c). */
struct condition_work {
    uint64_t condition; /* its handle */
    int kind;
    unsigned size;
    struct handle **bodies; /* graphs of the node; NULL before the node is made */
    struct handle *context;
};

struct work {
    int type;
    union {
        struct kernel_work kernel;
        struct copy_3d copy;
        struct fill_work fill;
        struct host_work host;
        struct handle *child; /* a graph of its own */
        struct handle *event;
        struct memory_work memory;
        struct condition_work condition;
    };
};

/* Returns the number of graphs that work holds, and where they are listed. */
size_t graphs_in(const struct work *work, struct handle *const **graphs);

/* Runs work that is not a host function or a child graph. */
int run_work(const struct work *work);
int run_kernel(const struct kernel_work *kernel);          /* launch.c */
int run_copy(const struct copy_3d *box);                   /* copy.c */
int run_fill(const struct fill_work *fill);                /* copy.c */
int check_kernel(struct handle *function, const struct shape *shape);
int check_copy(const struct copy_3d *box);
int check_fill(const struct fill_work *fill);
int check_work(const struct work *work);
/* Copies the arguments of a launch into `block`, which has the size of the function's parameters. */
int pack_arguments(const struct function *function, void **parameters, void **extra, uint8_t *block);
void record_now(struct handle *event);
/* Adds work to the graph of a capturing stream, or runs it. */
int submit(struct handle *stream, const struct work *work);

/* ---- conditions (condition.c) ---- */

/* Makes the graphs of a node, or copies of them. */
int copy_bodies(struct condition_work *to, const struct condition_work *from);
int check_condition(const struct condition_work *work, struct handle *graph);
/* Notes that a node uses its condition. */
void use_condition(uint64_t condition);
/* Takes what a kernel has set: pairs of handle and value. */
int set_conditions(const uint64_t *pairs, size_t count);
uint64_t condition_value(uint64_t condition);
/* Gives the conditions of a graph the values at the start of a launch. */
void start_conditions(const struct graph *graph);
/* Returns whether a condition of the graph has no node. */
int has_unused_conditions(struct handle *graph);
void forget_conditions(struct handle *graph);
int allowed_in_body(const struct graph *graph);
/* A graph with conditional nodes cannot be copied or become a child, as documented. */
int has_conditions(const struct graph *graph);

/* ---- capture (capture.c) ---- */

/* Returns whether the stream is capturing. The code is an error of the capture, if there is one. */
int is_capturing(struct handle *stream, int *code);
/* Adds work to the graph of a stream that is capturing. */
int capture_work(struct handle *stream, const struct work *work);
int capture_record(struct handle *event, struct handle *stream, int external);
int capture_wait(struct handle *stream, struct handle *event, int external);
void forget_capture(struct handle *stream);

/* ---- graphs (graph.c) ---- */

struct edge {
    struct handle *from;
    uint8_t data[8]; /* ports and type, which order what is serial anyway */
};

struct node {
    struct work work;
    struct edge *edges; /* the nodes that it depends on */
    size_t count;
    uint64_t origin;    /* the number of the node that it was copied from */
    size_t place;       /* in its graph */
    int disabled;
};

struct graph {
    struct handle **nodes; /* in the order of their creation */
    size_t count, room;
    struct handle *parent; /* the node whose child it is */
    struct handle **order; /* in which they run: of a graph that was instantiated */
    struct handle **objects;
    size_t object_count;
    int captured; /* a capture adds nodes */
};

struct exec {
    struct handle *graph;
    uint64_t flags;
    int running, doomed;
};

struct node *node_of(struct handle *node);
struct graph *graph_of(struct handle *graph);
struct handle *new_graph(void);
/* Makes a node; `made` may be NULL. The work is copied, also its arguments. */
int add_node(struct handle **made, struct handle *graph, const struct edge *edges, size_t count, const struct work *work);
int add_edge(struct handle *node, struct handle *from, const void *data);
int has_memory_nodes(const struct graph *graph);
void destroy_graph(struct handle *graph);
int clone_graph(struct handle **made, struct handle *graph);
/* Replaces the work of a node by a copy. */
int set_work(struct node *node, const struct work *work);
/* Finds the copy of a node, also in child graphs. */
struct handle *find_copy(struct handle *graph, uint64_t origin);
/* Finds the copy of a node in an instantiated graph (graph_exec.c). */
struct node *copy_in(struct handle *exec, struct handle *node);
/* Takes the work of a graph with the same nodes and edges. */
int update_child(struct node *node, struct handle *child);
void drop_objects(struct graph *graph);
int share_objects(struct graph *to, const struct graph *from);
int edge_from(struct edge *edges, struct handle *const *nodes, const void *data, size_t count);

#endif

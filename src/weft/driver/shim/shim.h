/* What the parts of the stand-in driver share: result codes, handles, the connection to the server.
 *
 * Names and numbers are those of the CUDA driver API's public documentation; no header of NVIDIA's is included. Types
 * are spelled by their size: a CUdeviceptr is a uint64_t, every handle a `struct handle *`, every enumeration an int. */
#ifndef WEFT_SHIM_H
#define WEFT_SHIM_H

#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

enum result {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    DEINITIALIZED = 4,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_PTX = 218,
    INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401,
    LOSSY_QUERY = 402,
    NOT_FOUND = 500,
    NOT_READY = 600,
    PEER_ACCESS_UNSUPPORTED = 217,
    PRIMARY_CONTEXT_ACTIVE = 708,
    HOST_MEMORY_ALREADY_REGISTERED = 712,
    HOST_MEMORY_NOT_REGISTERED = 713,
    NOT_PERMITTED = 800,
    NOT_SUPPORTED = 801,
    STREAM_CAPTURE_UNSUPPORTED = 900,
    STREAM_CAPTURE_INVALIDATED,
    STREAM_CAPTURE_MERGE,
    STREAM_CAPTURE_UNMATCHED,
    STREAM_CAPTURE_UNJOINED,
    STREAM_CAPTURE_ISOLATION,
    STREAM_CAPTURE_IMPLICIT,
    CAPTURED_EVENT,
    STREAM_CAPTURE_WRONG_THREAD,
    GRAPH_EXEC_UPDATE_FAILURE = 910,
    INVALID_CLUSTER_SIZE = 912,
    UNKNOWN = 999,
};

/* ---- handles (handles.c) ------------------------------------------------------------------------------------- */

enum kind { FREE_HANDLE, CONTEXT, STREAM, EVENT, MODULE, FUNCTION, LINK, POOL, GRAPH, NODE, EXEC, OBJECT };

struct handle {
    uint32_t kind;
    uint32_t flags;
    struct handle *owner; /* context of a stream or event, module of a function */
    uint64_t id;          /* the server's number of a module or function; the time of an event in ns */
    void *data;           /* struct context, struct function … */
};

struct handle *new_handle(enum kind kind);
void free_handle(struct handle *handle);
int is_handle(const void *handle, enum kind kind);
/* Calls `visit` for every live handle of a kind. */
void each_handle(enum kind kind, void (*visit)(struct handle *handle, void *with), void *with);

/* ---- one API call (call.c) ------------------------------------------------------------------------------------ */

struct call {
    const char *name;
    const char *text; /* a name among the arguments, for the trace */
    int count;
    int code;
    int released;
    uint64_t started_ns;
    uint64_t arguments[14];
};

enum need { NOTHING, INITIALISED, CURRENT };

int begin_call(struct call *call, enum need need);
void end_call(struct call *call);
/* Lets other threads call the driver while a function of the program runs. */
void release_call(struct call *call);
/* The same for a part of the call. */
void suspend_call(struct call *call);
void resume_call(struct call *call);
/* Calls a function of the program when this call has released its lock. */
void call_later(void (*function)(void *), void *data);

#define ARG(x) (uint64_t)(x)
#define A1(a) ARG(a)
#define A2(a, ...) ARG(a), A1(__VA_ARGS__)
#define A3(a, ...) ARG(a), A2(__VA_ARGS__)
#define A4(a, ...) ARG(a), A3(__VA_ARGS__)
#define A5(a, ...) ARG(a), A4(__VA_ARGS__)
#define A6(a, ...) ARG(a), A5(__VA_ARGS__)
#define A7(a, ...) ARG(a), A6(__VA_ARGS__)
#define A8(a, ...) ARG(a), A7(__VA_ARGS__)
#define A9(a, ...) ARG(a), A8(__VA_ARGS__)
#define A10(a, ...) ARG(a), A9(__VA_ARGS__)
#define A11(a, ...) ARG(a), A10(__VA_ARGS__)
#define A12(a, ...) ARG(a), A11(__VA_ARGS__)
#define PICK(a, b, c, d, e, f, g, h, i, j, k, l, m, ...) m
#define COUNTED(...) PICK(__VA_ARGS__, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define LISTED(...) PICK(__VA_ARGS__, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A1)(__VA_ARGS__)

/* Opens every entry point: takes the lock, records the arguments for --trace, returns at once if the driver is not
 * initialised or the thread has no context. The lock is released and the call traced when the function returns. */
#define CALL(need, ...)                                                                                              \
    struct call call __attribute__((cleanup(end_call))) = {__func__, NULL, COUNTED(__VA_ARGS__), 0, 0, 0, {LISTED(__VA_ARGS__)}}; \
    if (begin_call(&call, need) != SUCCESS) return call.code
#define CALL0(need)                                                                                                  \
    struct call call __attribute__((cleanup(end_call))) = {.name = __func__};                                         \
    if (begin_call(&call, need) != SUCCESS) return call.code
#define RETURN(value) return call.code = (value)

/* ---- contexts (cuda.c) ----------------------------------------------------------------------------------------- */

struct context {
    unsigned flags;
    int device;
    int fault;   /* the sticky error of a kernel, 0 if there is none */
    int retained; /* of the primary context */
    int attached; /* by cuCtxAttach */
    uint64_t limits[8]; /* by CUlimit */
    uint64_t id;
};

struct handle *current_context(void);
/* Returns the device of the current context; the first if there is none. */
int device_number(void);
int device_of_context(struct handle *context);
int is_device(int which);
/* Returns the sticky error of the current context. */
int fault(void);
/* Returns that of another context. */
int fault_in(const struct handle *context);
void set_fault(int code);

/* ---- the server (wire.c) ---------------------------------------------------------------------------------------- */

enum request_kind {
    HELLO = 1,
    ALLOCATE,
    RELEASE,
    LOAD,
    UNLOAD,
    FIND_FUNCTION,
    FIND_SYMBOL,
    LAUNCH,
    OCCUPANCY,
    LINK_IMAGES,
    NOTE,
    REFUSE,
    SHOW,
    BYE,
    SET_HEAP,
    TENSOR_MAP,
};

struct request {
    uint32_t kind;
    uint32_t ranges; /* of device memory that copies and memsets wrote since the last request */
    uint64_t argument[8];
    uint64_t blob_bytes;
};

struct answer {
    uint32_t code;
    uint32_t stop; /* 1: end the program with exit code 3 */
    uint64_t value[4];
    uint64_t text_bytes; /* what kernels printed */
    uint64_t blob_bytes;
};

/* Sends one request and waits. The caller frees `*blob` if it asks for it. Never returns if the program must stop. */
struct answer ask(struct request request, const void *sent, void **blob);
/* Connects, maps device memory and reads the record of the device. */
int connect_server(void);
/* Refuses an entry point, or a use of it, by name; returns NOT_SUPPORTED with --keep-going, otherwise never. */
int refuse(const char *name, const char *why);
/* Notes that a range of device memory was written by the host. */
void wrote(uint64_t address, uint64_t bytes);

struct device_record {
    uint64_t memory_bytes;
    uint64_t base;
    uint8_t uuid[16];
    char name[96];
    int32_t attributes[192];
};

#define MOST_DEVICES 16
extern struct device_record devices[MOST_DEVICES];
extern int device_count;
extern uint64_t memory_bytes; /* of all devices: their windows follow each other, in one file */
extern uint8_t *memory_view;  /* the child's own mapping of device memory */
extern int memory_file;
extern int forked;
extern int by_model;      /* events hold the model's time, not the host's */
extern uint64_t model_ns; /* of the launches so far */

void trace_call(const struct call *call, uint64_t ended_ns);
uint64_t now_ns(void);

/* ---- streams (stream.c) ----------------------------------------------------------------------------------------- */

int is_stream(const struct handle *stream);

/* ---- what a capture forbids (capture.c): each returns SUCCESS, or the code and invalidates the capture ---------------- */

int unsafe_in_capture(void);         /* a call that may wait for other work of the device */
int waits_in_capture(void);          /* a call that runs in the legacy stream and waits */
int context_waits_in_capture(void);
int stream_waits_in_capture(struct handle *stream);
int event_in_capture(struct handle *event);
void forget_record(struct handle *event);

/* ---- the table of cuGetProcAddress (table.c) -------------------------------------------------------------------- */

void *find_entry(const char *name, int version, int *status);

/* ---- memory (memory.c) ------------------------------------------------------------------------------------------ */

struct location {
    int type; /* 0 nowhere, 1 a device, 2 the host, 3 a NUMA node of it, 4 the current one */
    int id;
};

/* What a program advised (managed.c). */
struct advised {
    struct location preferred, prefetched;
    int read_mostly;
    uint32_t accessed_by; /* a bit per device, the highest for the host */
    int in_parts;
};

struct allocation {
    uint64_t address;
    uint64_t bytes;
    uint64_t id;
    int device;
    int type;
    unsigned flags;
    struct handle *pool; /* from which it was allocated */
    int of_graph;        /* placed by a node of a graph */
    int nodes;           /* that hold it */
    int live;            /* a launch of the graph allocated it, and nothing freed it */
    struct advised advised;
};

enum { DEVICE_MEMORY, MANAGED_MEMORY, PINNED_MEMORY, MODULE_VARIABLE, MANAGED_VARIABLE, REGISTERED_MEMORY };
#define ADDRESSES_USED "the program uses the addresses of device memory for something else"

const struct allocation *find_allocation(uint64_t address);
/* Returns the allocation that begins at an address. */
struct allocation *allocation_at(uint64_t address);
/* Copies bytes between any two places. */
int copy_bytes(uint64_t to, uint64_t from, size_t bytes);
/* Returns where the child finds device bytes; host addresses as they are; NULL if the range leaves its allocation. */
void *view_of(uint64_t address, uint64_t bytes);
int in_window(uint64_t address);
void free_all_memory(int which);
int allocate_memory(uint64_t *address, uint64_t bytes, int type, unsigned flags);
int allocate_on(int which, uint64_t *address, uint64_t bytes, int type, unsigned flags);
/* Frees an allocation whose type is in a range. */
int release_memory(uint64_t address, int least, int most);
void set_pool(uint64_t address, struct handle *pool);
/* Returns the type of memory at a location (kind and number) with an allocation type: 1 pinned, 2 managed; -1 if there is
 * none. */
int pool_type(int allocation, const int *location);
/* Counts bytes that were allocated from a pool, or freed. */
void count_in_pool(struct handle *pool, int64_t bytes);
/* Memory of a graph has its address from the node's creation on, and is live between a launch and a free. */
int allocate_graph_memory(uint64_t *address, uint64_t bytes, int type, int which);
void keep_graph_memory(uint64_t address);
void drop_graph_memory(uint64_t address);
int is_graph_memory(uint64_t address);
int use_graph_memory(uint64_t address);
int unuse_graph_memory(uint64_t address);
int add_allocation(uint64_t address, uint64_t bytes, int type, unsigned flags);
void drop_allocation(uint64_t address);
/* Maps device memory at its device address, so that the host uses the same pointer; 0 if the addresses are in use. */
int map_for_host(uint64_t address, uint64_t bytes);

/* ---- registered host memory (registered.c) ------------------------------------------------------------------------ */

int is_registered(uint64_t host);
/* Returns the host's address for a device address of registered memory, and the other way round; 0 if it is none. */
uint64_t host_of(uint64_t address);
uint64_t device_of(uint64_t host);
void unregister_all(void);
void before_launch(void);
void after_launch(void);

/* ---- modules (module.c) ------------------------------------------------------------------------------------------ */

void unload_all_modules(int which);
/* Returns whether a function can run on a device: those of a library can on all. */
int runs_on(struct handle *function, int which);

struct function {
    uint32_t parameters;
    uint32_t parameter_bytes;
    int32_t attributes[16];
    int32_t dynamic_limit; /* bytes of dynamic shared memory that the program opted in to */
    char *name;
    uint32_t *layout; /* offset and size of each parameter */
    void *settings;   /* of launch_v1.c */
};

#endif

/* The connection to the server: one Unix socket, a request and its answer at a time; device memory is a file that both
 * sides map. The program's process gets no thread and no signal handler. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

#define PROTOCOL 2
#define EXIT_REFUSED 3
#define MOST_RANGES 512
#define POLL_NS 200000 /* a small launch; protocol.py has the server's part */

struct device_record devices[MOST_DEVICES];
int device_count;
uint64_t memory_bytes;
uint8_t *memory_view;
int memory_file = -1;
int forked, by_model;
uint64_t model_ns;

static int server = -1;
static int trace_file = -1;
static uint64_t trace_start_ns;
static pthread_mutex_t lock;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct { uint64_t address, bytes; } ranges[MOST_RANGES];
static uint32_t range_count;

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* As CUDA documents: what was initialised before a fork cannot be used after it. */
static void after_fork(void) {
    if (server < 0) return;
    close(server);
    server = -1;
    forked = 1;
}

static void prepare(void) {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &kind);
    pthread_atfork(NULL, NULL, after_fork);
    const char *path = getenv("WEFT_DRIVER_TRACE");
    if (path && *path) trace_file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    trace_start_ns = now_ns();
}

int begin_call(struct call *call, enum need need) {
    pthread_once(&once, prepare);
    pthread_mutex_lock(&lock);
    if (trace_file >= 0) call->started_ns = now_ns();
    if (forked || (need != NOTHING && server < 0)) {
        call->code = NOT_INITIALIZED;
    } else if (need == CURRENT && !current_context()) {
        call->code = INVALID_CONTEXT;
    }
    return call->code;
}

void release_call(struct call *call) {
    call->released = 1;
    pthread_mutex_unlock(&lock);
}

void suspend_call(struct call *call) {
    (void)call;
    pthread_mutex_unlock(&lock);
}

void resume_call(struct call *call) {
    (void)call;
    pthread_mutex_lock(&lock);
}

struct later {
    void (*function)(void *);
    void *data;
    struct later *next;
};
static __thread struct later *pending;

void call_later(void (*function)(void *), void *data) {
    struct later *made = malloc(sizeof *made);
    if (!made) return; /* without memory the object is leaked */
    *made = (struct later){function, data, pending};
    pending = made;
}

void end_call(struct call *call) {
    if (trace_file >= 0) trace_call(call, now_ns());
    if (!call->released) pthread_mutex_unlock(&lock);
    while (pending) {
        struct later now = *pending;
        free(pending);
        pending = now.next;
        now.function(now.data);
    }
}

void trace_call(const struct call *call, uint64_t ended_ns) {
    char line[640];
    int at = snprintf(line, sizeof line, "{\"call\": \"%s\", \"args\": [", call->name);
    for (int i = 0; i < call->count && at < 500; i++)
        at += snprintf(line + at, sizeof line - (size_t)at, "%s\"%#llx\"", i ? ", " : "", (unsigned long long)call->arguments[i]);
    if (call->text) at += snprintf(line + at, sizeof line - (size_t)at, "], \"name\": [\"%.*s\"", (int)strcspn(call->text, "\"\\\n") & 127, call->text);
    at += snprintf(line + at, sizeof line - (size_t)at, "], \"result\": %d, \"at_us\": %.1f, \"us\": %.1f, \"pid\": %d, \"tid\": %ld}\n", call->code,
                   (double)(call->started_ns - trace_start_ns) / 1e3, (double)(ended_ns - call->started_ns) / 1e3, (int)getpid(),
                   (long)syscall(SYS_gettid));
    if (write(trace_file, line, (size_t)at) < 0) trace_file = -1;
}

static _Noreturn void lost(const char *what) {
    fprintf(stderr, "weft: the connection to the virtual GPU was lost (%s); the program cannot go on\n", what);
    _exit(EXIT_REFUSED);
}

static void send_all(const void *from, size_t bytes) {
    const char *at = from;
    while (bytes) {
        ssize_t sent = send(server, at, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) lost("send");
        at += sent;
        bytes -= (size_t)sent;
    }
}

static void receive_all(void *to, size_t bytes) {
    char *at = to;
    while (bytes) {
        ssize_t got = recv(server, at, bytes, MSG_WAITALL);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) lost("receive");
        at += got;
        bytes -= (size_t)got;
    }
}

/* Polls for the answer before it blocks: an idle core of a virtual machine takes longer to wake than a small launch.
 * With one core alone the server could not work meanwhile. */
static void poll_answer(void) {
    static long cores;
    if (!cores) cores = sysconf(_SC_NPROCESSORS_ONLN);
    char first;
    uint64_t until = cores > 1 ? now_ns() + POLL_NS : 0;
    while (now_ns() < until && recv(server, &first, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR)) continue;
}

static void send_request(struct request *request, const void *sent) {
    request->ranges = range_count;
    struct iovec parts[2] = {{request, sizeof *request}, {ranges, range_count * sizeof ranges[0]}};
    char head[sizeof *request + 64 * sizeof ranges[0]];
    size_t bytes = parts[0].iov_len + parts[1].iov_len;
    if (bytes + request->blob_bytes <= sizeof head) { /* the usual launch: one system call */
        memcpy(head, request, sizeof *request);
        memcpy(head + sizeof *request, ranges, parts[1].iov_len);
        if (request->blob_bytes) memcpy(head + bytes, sent, request->blob_bytes);
        send_all(head, bytes + request->blob_bytes);
    } else {
        send_all(request, parts[0].iov_len);
        send_all(ranges, parts[1].iov_len);
        if (request->blob_bytes) send_all(sent, request->blob_bytes);
    }
    range_count = 0;
}

/* Returns received bytes, with a NUL behind them. */
static char *received(size_t bytes) {
    char *made = malloc(bytes + 1);
    if (made) {
        receive_all(made, bytes);
        made[bytes] = 0;
        return made;
    }
    lost("no memory");
}

static void print_text(size_t bytes) {
    char *text = received(bytes);
    fwrite(text, 1, bytes, stdout);
    fflush(stdout);
    free(text);
}

struct answer ask(struct request request, const void *sent, void **blob) {
    struct answer answer;
    send_request(&request, sent);
    poll_answer();
    receive_all(&answer, sizeof answer);
    if (answer.text_bytes) print_text(answer.text_bytes);
    void *kept = answer.blob_bytes ? received(answer.blob_bytes) : NULL;
    if (answer.stop) { /* the server has printed why; exit handlers would call a driver that cannot answer */
        fflush(NULL);
        _exit(EXIT_REFUSED);
    }
    if (blob)
        *blob = kept;
    else
        free(kept);
    return answer;
}

void wrote(uint64_t address, uint64_t bytes) {
    if (!bytes) return;
    if (range_count) {
        uint64_t end = ranges[range_count - 1].address + ranges[range_count - 1].bytes;
        if (end == address) {
            ranges[range_count - 1].bytes += bytes;
            return;
        }
    }
    if (range_count == MOST_RANGES) ask((struct request){.kind = NOTE}, NULL, NULL);
    ranges[range_count].address = address;
    ranges[range_count++].bytes = bytes;
}

int refuse(const char *name, const char *why) {
    if (server < 0 && connect_server() != SUCCESS) {
        fprintf(stderr, "weft: %s is not supported: %s\n", name, why);
        _exit(EXIT_REFUSED);
    }
    char text[1024];
    int length = snprintf(text, sizeof text, "%s%c%s", name, 0, why);
    if (length < 0 || (size_t)length >= sizeof text) length = (int)sizeof text - 1;
    ask((struct request){.kind = REFUSE, .blob_bytes = (uint64_t)length}, text, NULL);
    return NOT_SUPPORTED;
}

/* The answer to HELLO carries the file of device memory. */
static int receive_file(struct answer *answer) {
    char space[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {answer, sizeof *answer};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    ssize_t got = recvmsg(server, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (got != (ssize_t)sizeof *answer || !head || head->cmsg_type != SCM_RIGHTS) return -1;
    int file;
    memcpy(&file, CMSG_DATA(head), sizeof file);
    return file;
}

int connect_server(void) {
    if (forked) return NOT_INITIALIZED;
    if (server >= 0) return SUCCESS;
    const char *path = getenv("WEFT_DRIVER_SOCKET");
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    if (!path || strlen(path) >= sizeof where.sun_path) return NO_DEVICE;
    strcpy(where.sun_path, path);
    server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server < 0 || connect(server, (struct sockaddr *)&where, sizeof where) != 0) {
        if (server >= 0) close(server);
        server = -1;
        return NO_DEVICE;
    }
    struct request hello = {.kind = HELLO, .argument = {PROTOCOL, (uint64_t)getpid(), sizeof devices[0]}};
    struct answer answer = {0};
    send_all(&hello, sizeof hello);
    memory_file = receive_file(&answer);
    if (memory_file < 0 || answer.code != SUCCESS || !answer.blob_bytes || answer.blob_bytes % sizeof devices[0] || answer.blob_bytes > sizeof devices)
        lost("the server has another version");
    receive_all(devices, answer.blob_bytes);
    device_count = (int)(answer.blob_bytes / sizeof devices[0]);
    for (int i = 0; i < device_count; i++) memory_bytes += devices[i].memory_bytes;
    by_model = answer.value[0] != 0;
    memory_view = mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory_file, 0);
    if (memory_view == MAP_FAILED) lost("device memory cannot be mapped");
    return SUCCESS;
}

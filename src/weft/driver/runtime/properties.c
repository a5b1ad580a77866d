/* cudaDeviceProp: one record of what the driver tells by attributes. CUDA 12 and 13 lay it out differently. */
#include <string.h>

#include "runtime.h"

#if CUDART == 12
#define ONLY_12(field) field;
#else
#define ONLY_12(field)
#endif

struct properties {
    char name[256];
    uint8_t uuid[16];
    char luid[8];
    unsigned luid_mask;
    size_t memory_bytes, shared_per_block;
    int registers_per_block, warp;
    size_t largest_pitch;
    int threads_per_block, block[3], grid[3];
    ONLY_12(int clock_khz)
    size_t constant_bytes;
    int major, minor;
    size_t texture_alignment, texture_pitch_alignment;
    ONLY_12(int overlap)
    int multiprocessors;
    ONLY_12(int timeout)
    int integrated, maps_host;
    ONLY_12(int compute_mode)
    int texture_1d, texture_1d_mipmap;
    ONLY_12(int texture_1d_linear)
    int textures[23], surfaces[14]; /* sizes of texture and surface kinds, which are not supported: 0 */
    size_t surface_alignment;
    int concurrent_kernels, ecc, pci_bus, pci_device, pci_domain, tcc, copy_engines, unified_addresses;
    ONLY_12(int memory_khz)
    int bus_bits, l2_bytes, l2_persisting_bytes, threads_per_multiprocessor, stream_priorities, global_l1, local_l1;
    size_t shared_per_multiprocessor;
    int registers_per_multiprocessor, managed, multi_gpu_board, board_group, host_atomics;
    ONLY_12(int single_to_double)
    int pageable, concurrent_managed, preemption, host_pointer_registered, cooperative;
    ONLY_12(int cooperative_multi_device)
    size_t shared_opt_in;
    int pageable_host_tables, direct_managed, blocks_per_multiprocessor, policy_window;
    size_t shared_reserved;
    int host_register, sparse_arrays, host_register_read_only, timeline_semaphores, pools, rdma;
    unsigned rdma_flush;
    int rdma_order;
    unsigned pool_handles;
    int deferred_arrays, ipc_events, cluster_launch, unified_functions;
#if CUDART == 12
    int reserved[63];
#else
    int numa_config, numa_id, mps, host_numa_id;
    unsigned pci_device_id, pci_subsystem_id;
    int numa_ipc, reserved[56];
#endif
};

/* By the documented layouts: a field too many or too few would shift what a program reads. */
#if CUDART == 12
_Static_assert(sizeof(struct properties) == 1032 && offsetof(struct properties, cooperative) == 688, "CUDA 12");
_Static_assert(offsetof(struct properties, host_register) == 728 && offsetof(struct properties, unified_functions) == 776, "CUDA 12");
#else
_Static_assert(sizeof(struct properties) == 1008 && offsetof(struct properties, cooperative) == 668, "CUDA 13");
_Static_assert(offsetof(struct properties, host_register) == 704 && offsetof(struct properties, unified_functions) == 752, "CUDA 13");
#endif

/* CUdevice_attribute → field. */
struct number {
    int attribute;
    size_t at;
};
#define NUMBER(attribute, field) {attribute, offsetof(struct properties, field)}

static const struct number numbers[] = {
    NUMBER(12, registers_per_block),  NUMBER(10, warp),
    NUMBER(1, threads_per_block),     NUMBER(2, block[0]),
    NUMBER(3, block[1]),              NUMBER(4, block[2]),
    NUMBER(5, grid[0]),               NUMBER(6, grid[1]),
    NUMBER(7, grid[2]),               NUMBER(75, major),
    NUMBER(76, minor),                NUMBER(16, multiprocessors),
    NUMBER(18, integrated),           NUMBER(19, maps_host),
    NUMBER(31, concurrent_kernels),   NUMBER(32, ecc),
    NUMBER(33, pci_bus),              NUMBER(34, pci_device),
    NUMBER(50, pci_domain),           NUMBER(35, tcc),
    NUMBER(40, copy_engines),         NUMBER(41, unified_addresses),
    NUMBER(37, bus_bits),             NUMBER(38, l2_bytes),
    NUMBER(39, threads_per_multiprocessor), NUMBER(78, stream_priorities),
    NUMBER(79, global_l1),            NUMBER(80, local_l1),
    NUMBER(82, registers_per_multiprocessor), NUMBER(83, managed),
    NUMBER(84, multi_gpu_board),      NUMBER(85, board_group),
    NUMBER(86, host_atomics),         NUMBER(88, pageable),
    NUMBER(89, concurrent_managed),   NUMBER(90, preemption),
    NUMBER(91, host_pointer_registered), NUMBER(95, cooperative),
    NUMBER(99, host_register),        NUMBER(100, pageable_host_tables),
    NUMBER(101, direct_managed),      NUMBER(106, blocks_per_multiprocessor),
    NUMBER(108, l2_persisting_bytes), NUMBER(109, policy_window),
    NUMBER(112, sparse_arrays),       NUMBER(113, host_register_read_only),
    NUMBER(114, timeline_semaphores), NUMBER(115, pools),
    NUMBER(120, cluster_launch),      NUMBER(129, unified_functions),
#if CUDART == 12
    NUMBER(13, clock_khz),            NUMBER(15, overlap),
    NUMBER(17, timeout),              NUMBER(20, compute_mode),
    NUMBER(36, memory_khz),           NUMBER(87, single_to_double),
    NUMBER(96, cooperative_multi_device),
#endif
};

static const struct number sizes[] = {
    NUMBER(8, shared_per_block),
    NUMBER(9, constant_bytes),
    NUMBER(11, largest_pitch),
    NUMBER(14, texture_alignment),
    NUMBER(51, texture_pitch_alignment),
    NUMBER(30, surface_alignment),
    NUMBER(81, shared_per_multiprocessor),
    NUMBER(97, shared_opt_in),
    NUMBER(111, shared_reserved),
};

static int describe(struct properties *made, int device) {
    if (!made) return INVALID_VALUE;
    memset(made, 0, sizeof *made);
    int code = cuDeviceGetName(made->name, sizeof made->name, device);
    if (code == SUCCESS) code = cuDeviceGetUuid_v2(made->uuid, device);
    if (code == SUCCESS) code = cuDeviceTotalMem_v2(&made->memory_bytes, device);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && code == SUCCESS; i++)
        code = cuDeviceGetAttribute((int *)((char *)made + numbers[i].at), numbers[i].attribute, device);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && code == SUCCESS; i++) {
        int value = 0;
        code = cuDeviceGetAttribute(&value, sizes[i].attribute, device);
        size_t wide = (size_t)value;
        memcpy((char *)made + sizes[i].at, &wide, sizeof wide);
    }
    return code;
}

#if CUDART == 12
EXPORT int cudaGetDeviceProperties_v2(struct properties *made, int device) { CALL(describe(made, device)); }

/* The layout of CUDA 11 is the first part of CUDA 12's. */
EXPORT int cudaGetDeviceProperties(void *made, int device) {
    struct properties whole;
    int code = made ? ready() ?: describe(&whole, device) : INVALID_VALUE;
    if (code == SUCCESS) memcpy(made, &whole, offsetof(struct properties, host_register));
    return done(code);
}
#else
EXPORT int cudaGetDeviceProperties(struct properties *made, int device) { CALL(describe(made, device)); }
#endif

EXPORT int cudaChooseDevice(int *device, const struct properties *wanted) {
    if (!device || !wanted) return done(INVALID_VALUE);
    *device = 0;
    CALL(SUCCESS);
}

// Instructions for clusters as functions, one each.
#pragma once
#include "async.cuh"

__device__ __forceinline__ unsigned rank() {
    unsigned r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
__device__ __forceinline__ unsigned peer(const void* p, unsigned rank) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at(p)), "r"(rank));
    return there;
}
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ __forceinline__ void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}
__device__ __forceinline__ void fence_inits() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void arrive_at(void* bar, unsigned rank) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(peer(bar, rank)) : "memory");
}
__device__ __forceinline__ void wait_cluster(void* bar, int parity) {
    asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1; @!p bra L; }"
                 ::"r"(at(bar)), "r"(parity) : "memory");
}
__device__ __forceinline__ void wait_cta(void* bar, int parity) {
    asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%0], %1; @!p bra L; }"
                 ::"r"(at(bar)), "r"(parity) : "memory");
}
__device__ __forceinline__ void put(void* p, unsigned rank, int value) {
    asm volatile("st.shared::cluster.b32 [%0], %1;" ::"r"(peer(p, rank)), "r"(value) : "memory");
}
__device__ __forceinline__ int get(const void* p, unsigned rank) {
    int value;
    asm volatile("ld.shared::cluster.b32 %0, [%1];" : "=r"(value) : "r"(peer(p, rank)) : "memory");
    return value;
}
__device__ __forceinline__ void send(void* p, unsigned rank, int value, void* bar) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
                 ::"r"(peer(p, rank)), "r"(value), "r"(peer(bar, rank)) : "memory");
}
__device__ __forceinline__ void load_for_both(void* to, const void* from, int bytes, void* bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
                 " [%0], [%1], %2, [%3], %4;"
                 ::"r"(at(to)), "l"(from), "r"(bytes), "r"(at(bar)), "h"((unsigned short)3) : "memory");
}

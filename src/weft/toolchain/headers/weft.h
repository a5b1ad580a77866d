// Marks for Weft. Under nvcc they have no effect: WEFT_REGION is just its pointer, so the marked kernel can be shipped.
// Copy this file next to the kernel where Weft is not installed.
#pragma once

// The parts of one dynamic shared block, each with a name:
//
//     float* scores = WEFT_REGION(block, ROWS * STRIDE * sizeof(float), "scores");
//     half*  table  = WEFT_REGION(reinterpret_cast<half*>(block + OFFSET), 256 * sizeof(half), "table");
//
// Use only the pointer it returns: Weft moves every region to its own place between gaps, so an index that leaves its
// region is a finding (M105), as are regions that overlap or reach beyond the block. Declare a region before its bytes
// are used. WEFT_REGION_REUSE gives bytes of an earlier region a second name on purpose; it must be inside that region.
#if defined(__CUDACC_RTC__) && !defined(WEFT_OFF)
#define WEFT_REGION(ptr, bytes, name) WEFT_REGION_MARK(ptr, bytes, "weft.region " name)
#define WEFT_REGION_REUSE(ptr, bytes, name) WEFT_REGION_MARK(ptr, bytes, "weft.reuse " name)
// In plain PTX the marked instruction is address = bytes * 0 + address.
#define WEFT_REGION_MARK(ptr, bytes, mark)                                                                     \
    weft_region(ptr, bytes, [](unsigned address, unsigned count) {                                             \
        unsigned place;                                                                                        \
        asm volatile("{\n\t.pragma \"" mark "\";\n\tmad.lo.u32 %0, %2, 0, %1;\n\t}"                            \
                     : "=r"(place) : "r"(address), "r"(count) : "memory");                                     \
        return place;                                                                                          \
    })
template <typename T, typename Mark>
__device__ __forceinline__ T* weft_region(T* ptr, unsigned long long bytes, Mark mark) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(ptr));
    return (T*)__cvta_shared_to_generic(mark(address, static_cast<unsigned>(bytes)));
}
#else
#define WEFT_REGION(ptr, bytes, name) (ptr)
#define WEFT_REGION_REUSE(ptr, bytes, name) (ptr)
#endif

// Show a value of a stage (scores, probabilities, row maximum ...) to the diagnosis.
#define WEFT_TAP(stage, ...)

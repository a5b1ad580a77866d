// What the programs share: a call that must succeed, a condition that must hold.
#include <cstdio>
#include <cstdlib>

#define REQUIRE(condition)                                                               \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);         \
            std::exit(1);                                                                \
        }                                                                                \
    } while (0)

#define OK(call)                                                                         \
    do {                                                                                 \
        cudaError_t code = (call);                                                       \
        if (code != cudaSuccess) {                                                       \
            std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(code)); \
            std::exit(1);                                                                \
        }                                                                                \
    } while (0)

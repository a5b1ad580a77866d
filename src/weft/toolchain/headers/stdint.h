// Fixed-width integers and their limits, which NVRTC does not provide.
#pragma once
#include <cuda/std/cstdint>

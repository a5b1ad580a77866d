// Fixed-width integers and their limits: NVRTC has none of its own.
#pragma once
#include <cuda/std/cstdint>

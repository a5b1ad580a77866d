// memcpy, memset and memmove are built into NVRTC.
#pragma once
#include <stddef.h>

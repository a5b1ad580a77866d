// printf is built into NVRTC; there are no files on the device.
#pragma once
#include <stddef.h>

// Marks for Weft. They compile to nothing, so a marked kernel is the kernel that ships.
#pragma once

// Name `bytes` bytes from `ptr`, a part of the dynamic shared block: checks then watch its edges.
#define WEFT_REGION(ptr, bytes, name)

// Show a value of a stage (scores, probabilities, row maximum ...) to the diagnosis.
#define WEFT_TAP(stage, ...)

// std:: names come from CCCL's device library. NVRTC declares a few itself (std::move, std::forward, std::nullptr_t);
// those are found first.
#pragma once
namespace cuda { namespace std {} }
namespace std { using namespace cuda::std; }

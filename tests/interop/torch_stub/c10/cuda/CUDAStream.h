#pragma once

namespace c10::cuda {
struct CUDAStream {
    operator cudaStream_t() const;
};
CUDAStream getCurrentCUDAStream();
}

// Replaces <<<…>>>, which NVRTC supports only in device code: the same conversions of the arguments.
template <class... Parameters>
struct Launch {
    Launch(void (*)(Parameters...), dim3, dim3, unsigned long, cudaStream_t);
    void operator()(Parameters...) const;
};

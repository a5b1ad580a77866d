// The part of PyTorch's C++ API that an exported kernel uses, with the real signatures: NVRTC has no torch headers,
// and with these it checks the types of the host code. Nothing here runs.
#pragma once

#include <cstdint>

namespace c10 {

enum class ScalarType : signed char { Byte, Int, Long, Half, Float, BFloat16 };

struct Device {
    bool operator==(const Device&) const;
};

struct IntArrayRef {
    IntArrayRef(const std::initializer_list<int64_t>&);
    bool operator==(const IntArrayRef&) const;
};

}  // namespace c10

namespace torch {

constexpr auto kByte = c10::ScalarType::Byte;
constexpr auto kInt = c10::ScalarType::Int;
constexpr auto kLong = c10::ScalarType::Long;
constexpr auto kHalf = c10::ScalarType::Half;
constexpr auto kFloat = c10::ScalarType::Float;
constexpr auto kBFloat16 = c10::ScalarType::BFloat16;

struct TensorOptions {
    TensorOptions dtype(c10::ScalarType) const;
};

struct Tensor {
    int64_t dim() const;
    int64_t size(int64_t) const;
    c10::IntArrayRef sizes() const;
    c10::ScalarType scalar_type() const;
    c10::Device device() const;
    TensorOptions options() const;
    bool is_cuda() const;
    bool is_contiguous() const;
    const void* const_data_ptr() const;
    void* mutable_data_ptr() const;
};

Tensor empty(c10::IntArrayRef, TensorOptions);

struct Check {
    template <class... Parts> Check(bool, const Parts&...);
};

struct Module {
    template <class F> void def(const char*, F, const char*);
};

}  // namespace torch

#define TORCH_CHECK(...) ::torch::Check(__VA_ARGS__)
#define PYBIND11_MODULE(name, m) void init_##name(::torch::Module& m)

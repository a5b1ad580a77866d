// With -default-device NVRTC reads the host code of a header as device code. It must parse, but never runs: functions
// are declared, and those that need a body trap. Included before the file and before the first __host__.
#pragma once
#include <cuda_runtime.h>

#include "weft_std.h"
#include "weft_sys_types.h"

#undef __host__
#define __host__
#define thread_local

struct cudaDeviceProp;
cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, int);
cudaError_t cudaOccupancyMaxPotentialClusterSize(int*, const void*, const cudaLaunchConfig_t*);

namespace std {
struct string {
    string() = default;
    string(const char*);
    const char* c_str() const;
    bool empty() const;
    size_t size() const;
    string& operator+=(const string&);
};
string operator+(const string&, const string&);
bool operator==(const string&, const string&);
template <typename T> string to_string(T);

struct ostream {};
template <typename T> ostream& operator<<(ostream&, const T&);
ostream& operator<<(ostream&, ostream& (*)(ostream&));
ostream& endl(ostream&);
extern ostream cout, cerr;
struct ostringstream : ostream {
    string str() const;
};
struct stringstream : ostringstream {};

struct exception {
    exception() noexcept {}
    virtual ~exception() noexcept {}
    virtual const char* what() const noexcept;
};
struct runtime_error : exception {
    explicit runtime_error(const string&);
};
struct invalid_argument : exception {
    explicit invalid_argument(const string&);
};

// With bodies: a vector of a local type must be defined.
template <typename T>
struct vector {
    T* first;
    size_t count;
    T* begin() const { return first; }
    T* end() const { return first + count; }
    T* data() const { return first; }
    size_t size() const { return count; }
    bool empty() const { return count == 0; }
    T& operator[](size_t at) const { return first[at]; }
    void push_back(const T&) { __trap(); }
    void resize(size_t) { __trap(); }
    void clear() { __trap(); }
};
}  // namespace std

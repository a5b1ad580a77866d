// CUTLASS 4.2 alone spells CCCL's headers <cccl/cuda/std/…>. Under NVRTC two definitions of CCCL 3 conflict with it:
// CCCL's own std::tuple_size, and a get for integer_sequence that makes CuTe's ambiguous. Neither is needed there.
// They are moved to another namespace here, if CUTLASS is the first to include CCCL.
#pragma once
#include <cuda/std/__cccl/prologue.h>
#include <cuda/std/__cccl/epilogue.h>
#include <cuda/std/detail/__config>
#undef _CCCL_BEGIN_NAMESPACE_STD
#define _CCCL_BEGIN_NAMESPACE_STD _CCCL_PROLOGUE_INCLUDE_CHECK() namespace weft_put_aside {

#include <cuda/std/__cstddef/types.h>
#include <cuda/std/__tuple_dir/tuple_element.h>
#include <cuda/std/__tuple_dir/tuple_size.h>
#include <cuda/std/__type_traits/integral_constant.h>
#include <cuda/std/__type_traits/is_integral.h>
#define get weft_put_aside_get
#include <cuda/std/__utility/integer_sequence.h>
#undef get

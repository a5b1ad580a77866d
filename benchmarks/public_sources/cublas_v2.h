// Names of cuBLAS that SGEMM_CUDA and llm.c's dev/cuda mention, for a machine without cuBLAS: a handle can be made, every
// computation returns an error. The programs that are run compute without it.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define NO_COMPUTATION(name) template <class... Arguments> int name(Arguments...) { return 15; }
#define NOTHING_TO_DO(name) template <class... Arguments> int name(Arguments...) { return 0; }

typedef int cublasStatus_t, cublasComputeType_t, cublasMath_t, cublasOperation_t, cublasGemmAlgo_t, cublasLtEpilogue_t;
typedef void *cublasHandle_t, *cublasLtHandle_t, *cublasLtMatmulDesc_t, *cublasLtMatmulPreference_t;
typedef void* cublasLtMatrixLayout_t;
struct cublasLtMatmulHeuristicResult_t { int algo; };
enum { CUBLAS_STATUS_SUCCESS, CUBLAS_OP_N = 0, CUBLAS_OP_T, CUBLAS_DEFAULT_MATH = 0, CUBLAS_TF32_TENSOR_OP_MATH };
enum { CUBLAS_COMPUTE_16F, CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_32F_FAST_16BF };
enum { CUBLAS_GEMM_DEFAULT, CUBLAS_GEMM_DEFAULT_TENSOR_OP };
enum { CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS };
enum { CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB, CUBLASLT_MATMUL_DESC_EPILOGUE };
enum { CUBLASLT_MATMUL_DESC_BIAS_POINTER, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES };

NOTHING_TO_DO(cublasCreate) NOTHING_TO_DO(cublasDestroy) NOTHING_TO_DO(cublasSetMathMode)
NOTHING_TO_DO(cublasLtCreate) NOTHING_TO_DO(cublasLtDestroy)
NO_COMPUTATION(cublasSgemm) NO_COMPUTATION(cublasGemmEx) NO_COMPUTATION(cublasSgemmStridedBatched)
NO_COMPUTATION(cublasGemmStridedBatchedEx) NO_COMPUTATION(cublasLtMatmul)
NO_COMPUTATION(cublasLtMatmulAlgoGetHeuristic) NO_COMPUTATION(cublasLtMatmulDescCreate)
NO_COMPUTATION(cublasLtMatmulDescDestroy) NO_COMPUTATION(cublasLtMatmulDescSetAttribute)
NO_COMPUTATION(cublasLtMatmulPreferenceCreate) NO_COMPUTATION(cublasLtMatmulPreferenceDestroy)
NO_COMPUTATION(cublasLtMatmulPreferenceSetAttribute) NO_COMPUTATION(cublasLtMatrixLayoutCreate)
NO_COMPUTATION(cublasLtMatrixLayoutDestroy)

// host_gemm for AVX2, FMA and F16C. See host_gemm_loops.inc.
#if defined(__x86_64__)
#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "compile this file with -mavx2 -mfma -mf16c"
#endif

#define TILEWIRE_GEMM_KERNEL kHostGemmAvx2
#define TILEWIRE_GEMM_BLOCK_K 256
#define Eigen tilewire_eigen_avx2
#include "arithmetic/host_gemm_loops.inc"
#endif

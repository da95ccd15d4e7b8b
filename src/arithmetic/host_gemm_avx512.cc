// host_gemm for AVX-512. See host_gemm_loops.inc. The block along k is short so that a panel of three wide registers
// stays in a first-level cache of 32 KiB.
#if defined(__x86_64__)
#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) || !defined(__AVX512VL__)
#error "compile this file with -mavx512f -mavx512bw -mavx512dq -mavx512vl and the flags of AVX2"
#endif

#define TILEWIRE_GEMM_KERNEL kHostGemmAvx512
#define TILEWIRE_GEMM_BLOCK_K 128
#define Eigen tilewire_eigen_avx512
#include "arithmetic/host_gemm_loops.inc"
#endif

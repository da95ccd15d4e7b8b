// host_gemm for what the compiler targets by default. See host_gemm_loops.inc.
#define TILEWIRE_GEMM_KERNEL kHostGemmGeneric
#define TILEWIRE_GEMM_BLOCK_K 256
#define Eigen tilewire_eigen_generic
#include "arithmetic/host_gemm_loops.inc"

// In place of gpu_rank.cc where CUDA is not built.
#include <fmt/format.h>
#include <tilewire/error.h>

#include "executor/gpu_rank.h"

namespace tilewire {

std::unique_ptr<GpuRank> open_gpu_rank(const GpuPlace& place, const CudaDriver*) {
  throw Error(ErrorKind::unavailable, {.what = "Tilewire was built without CUDA",
                                       .where = fmt::format("rank {}", place.rank.value),
                                       .values = "device = cuda",
                                       .limit = "",
                                       .advice = "build it where nvcc is, or use CPU ranks (TILEWIRE_DEVICE=cpu)"});
}

}  // namespace tilewire

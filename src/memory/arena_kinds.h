// Tests only: all kinds of arena, for what each of them must do. GPU memory is that of a fake driver.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "memory/arena.h"
#include "memory/memfd_arena.h"
#include "memory/thread_arena.h"

#if defined(TILEWIRE_HAS_CUDA)
#include "memory/cuda/cuda_arena.h"
#include "memory/cuda/cuda_device.h"
#include "memory/cuda/fake_driver.h"
#endif

namespace tilewire {

struct ArenaKind {
  const char* name;
  int64_t page_bytes;
  std::function<std::unique_ptr<Arena>(const ArenaConfig&)> make;
  // As at the beginning of a process, for what is not the arena's own.
  std::function<void()> start = [] {};
  // What is left when all arenas are gone and should not be: "2 mappings", or "".
  std::function<std::string()> leftovers = [] { return std::string(); };

  friend std::ostream& operator<<(std::ostream& out, const ArenaKind& kind) { return out << kind.name; }
};

inline ArenaKind memfd_arenas() {
  return {.name = "memfd", .page_bytes = 4096, .make = [](const ArenaConfig& config) {
            return std::make_unique<MemfdArena>(config);
          }};
}

inline ArenaKind thread_arenas() {
  return {.name = "threads", .page_bytes = 4096, .make = [](const ArenaConfig& config) {
            const auto ranks = static_cast<size_t>(std::max(config.layout.flags.ranks, 0));
            return ThreadArenaGroup(std::vector<Node>(ranks, Node{0}), config).arena(config.rank);
          }};
}

#if defined(TILEWIRE_HAS_CUDA)
inline std::string fake_gpu_leftovers() {
  const int64_t broken = FakeGpu::broken_rules();
  return FakeGpu::live_text() + (broken == 0 ? "" : ", " + std::to_string(broken) + " broken rules");
}

// On device `ordinal` of the fake driver.
inline std::unique_ptr<CudaArena> make_fake_cuda_arena(const ArenaConfig& config, int ordinal = 0) {
  return std::make_unique<CudaArena>(std::make_shared<const CudaDevice>(ordinal, FakeGpu::driver()), config);
}

inline ArenaKind cuda_arenas() {
  return {.name = "cuda",
          .page_bytes = int64_t{2} << 20,
          .make = [](const ArenaConfig& config) { return make_fake_cuda_arena(config); },
          .start = [] { FakeGpu::start(); },
          .leftovers = fake_gpu_leftovers};
}
#endif

// Those whose memory processes share by descriptor.
inline std::vector<ArenaKind> process_arena_kinds() {
  return {
    memfd_arenas(),
#if defined(TILEWIRE_HAS_CUDA)
        cuda_arenas(),
#endif
  };
}

inline std::vector<ArenaKind> arena_kinds() {
  std::vector<ArenaKind> kinds = process_arena_kinds();
  kinds.push_back(thread_arenas());
  return kinds;
}

// Room for 32 pages a half and 16 of the user area; 4 of each are committed.
inline ArenaConfig small_arena_config(int32_t ranks, int64_t page_bytes) {
  return {.rank = Rank{0},
          .layout = {.flags = {.ranks = ranks, .max_chunks = 4},
                     .half_stride_bytes = 32 * page_bytes,
                     .user_stride_bytes = 16 * page_bytes},
          .half_bytes = 4 * page_bytes,
          .user_bytes = 4 * page_bytes};
}

}  // namespace tilewire

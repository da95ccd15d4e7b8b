#include "memory/bell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#include <limits>

namespace tilewire {

// Not FUTEX_PRIVATE_FLAG: the words may lie in memory of several processes.
void ring(Bell bell) noexcept {
  std::atomic_ref<uint32_t>(*bell.rung).fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, bell.rung, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

void Sleeper::sleep(std::chrono::nanoseconds limit) noexcept {
  if (limit <= std::chrono::nanoseconds::zero()) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  const timespec timeout = {static_cast<time_t>(seconds.count()), static_cast<long>((limit - seconds).count())};
  syscall(SYS_futex, bell_.rung, FUTEX_WAIT, seen_, &timeout, nullptr, 0);
}

}  // namespace tilewire

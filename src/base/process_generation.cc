#include "base/process_generation.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

namespace tilewire {
namespace {

// A word that is 0 again in a child; null where the kernel knows no such memory.
std::atomic<uint64_t>* make_wiped_word() {
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  if (madvise(page, page_bytes, MADV_WIPEONFORK) != 0) {
    munmap(page, page_bytes);
    return nullptr;
  }
  return new (page) std::atomic<uint64_t>(0);
}

// Of the process that wrote it last, which a child inherits.
std::atomic<uint64_t> last_number{0};

}  // namespace

uint64_t process_generation() {
  static std::atomic<uint64_t>* const word = make_wiped_word();
  if (word == nullptr) return static_cast<uint64_t>(getpid());
  uint64_t number = word->load(std::memory_order_relaxed);
  if (number != 0) return number;
  const uint64_t fresh = ++last_number;
  return word->compare_exchange_strong(number, fresh, std::memory_order_relaxed) ? fresh : number;
}

}  // namespace tilewire

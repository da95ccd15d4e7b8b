#include "transport/command_queue.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <bit>
#include <cstring>
#include <new>
#include <utility>

namespace tilewire {
namespace {

constexpr uint32_t kMaxEntries = 1u << 20;

void check_entry_count(uint32_t entry_count) {
  if (std::has_single_bit(entry_count) && entry_count <= kMaxEntries) return;
  throw Error(ErrorKind::invalid_argument, {.what = "a command ring cannot have this many entries",
                                            .values = fmt::format("entries = {}", entry_count),
                                            .limit = fmt::format("a power of two in 1..{}", kMaxEntries),
                                            .advice = "set ring_entries"});
}

std::shared_ptr<void> make_storage(uint32_t entry_count) {
  check_entry_count(entry_count);
  const size_t bytes = RingMemory::bytes(entry_count);
  constexpr std::align_val_t kAlignment{alignof(RingHeader)};
  void* const memory = ::operator new(bytes, kAlignment);
  std::memset(memory, 0, bytes);
  return {memory, [](void* p) { ::operator delete(p, kAlignment); }};
}

}  // namespace

CommandRing::CommandRing(uint32_t entry_count) : CommandRing(entry_count, make_storage(entry_count)) {}

CommandRing::CommandRing(uint32_t entry_count, std::shared_ptr<void> storage) : storage_(std::move(storage)) {
  check_entry_count(entry_count);
  memory_ = RingMemory::at(storage_.get(), entry_count);
}

}  // namespace tilewire

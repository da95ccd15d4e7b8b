#include "transport/command_queue.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <bit>
#include <cstring>
#include <new>

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

}  // namespace

void CommandRing::Free::operator()(void* p) const { ::operator delete (p, std::align_val_t{alignof(RingHeader)}); }

CommandRing::CommandRing(uint32_t entry_count) {
  check_entry_count(entry_count);
  const size_t bytes = RingMemory::bytes(entry_count);
  storage_.reset(::operator new (bytes, std::align_val_t{alignof(RingHeader)}));
  std::memset(storage_.get(), 0, bytes);
  memory_ = RingMemory::at(storage_.get(), entry_count);
}

}  // namespace tilewire

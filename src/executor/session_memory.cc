// How the memory of a session grows: the halves on all ranks together, what a program asks for on its own.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "executor/session.h"

namespace tilewire {
namespace {

constexpr int64_t kLeastUserGrowthBytes = int64_t{1} << 20;

}  // namespace

void Session::grow_halves(uint64_t attempt, int64_t half_bytes) {
  // Doubling keeps the number of collective steps small; where there is no room for that, what is needed must do.
  const int64_t wanted = std::min(std::max(half_bytes, 2 * arena_->half_bytes()), arena_->layout().half_stride_bytes);
  try {
    try {
      arena_->grow(wanted, 0);
    } catch (const Error& error) {
      if (wanted == half_bytes) throw;
      log_warn("{}; growing by less", error.what());
      arena_->grow(half_bytes, 0);
    }
    after_growth();
  } catch (const Error& error) {
    fail(error.kind(), fmt::format("rank {}: {}", rank().value, error.what()));
  }
  // Ranks may have got different amounts; when to grow again follows from the least, which all know.
  const std::vector<ArenaExport> exports = new_exports();
  ByteWriter writer;
  writer.u64(static_cast<uint64_t>(arena_->half_bytes())).u64(exports.size());
  for (const ArenaExport& e : exports) {
    writer.u64(static_cast<uint64_t>(e.range.begin_bytes)).u64(static_cast<uint64_t>(e.range.bytes));
  }
  writer.bytes(network_ ? network_->transport()->new_keys() : Bytes{});
  const auto all = control_->allgather(
      {.kind = "arena growth", .call = attempt, .hash = static_cast<uint64_t>(half_bytes)}, writer.take(), deadline());
  agreed_half_bytes_ = arena_->half_bytes();
  ExportsByRank by_rank;
  std::vector<Bytes> keys;
  for (const Bytes& bytes : all) {
    ByteReader reader(bytes, "arena growth");
    agreed_half_bytes_ = std::min(agreed_half_bytes_, static_cast<int64_t>(reader.u64()));
    std::vector<ArenaRange>& ranges = by_rank.emplace_back();
    for (uint64_t left = reader.u64(); left > 0; --left) {
      const auto begin = static_cast<int64_t>(reader.u64());
      ranges.push_back({begin, static_cast<int64_t>(reader.u64())});
    }
    keys.push_back(reader.bytes());
  }
  if (network_) network_->transport()->learn_keys(keys);
  map_exports(exports, by_rank, deadline());
}

void Session::after_growth() {
  if (!network_) return;
  tell_wire_of_new_memory();
  network_->register_new_ranges();
}

std::byte* Session::allocate_user(int64_t bytes) {
  const QuietGuard guard(*this);
  throw_if_dead();
  const int64_t needed = arena_->user_bytes_for(bytes);
  if (needed > arena_->user_bytes()) grow_user(needed);
  // Also after a growth whose registration has failed: what is handed out can be sent from.
  if (network_ && network_->has_new_ranges()) after_growth();
  return arena_->allocate_user(bytes);
}

// Each growth is a range that a network has to register, and a chunk across many of them as many writes: so it doubles.
void Session::grow_user(int64_t needed) {
  if (!network_) return arena_->grow(0, needed);
  const int64_t wanted =
      std::min(std::max({needed, 2 * arena_->user_bytes(), kLeastUserGrowthBytes}), arena_->layout().user_stride_bytes);
  try {
    arena_->grow(0, wanted);
  } catch (const Error& error) {
    if (wanted <= needed) throw;
    log_warn("{}; growing by less", error.what());
    arena_->grow(0, needed);
  }
}

}  // namespace tilewire

#include "transport/emulated/link_model.h"

#include <algorithm>

namespace tilewire {
namespace {

enum Draw : uint32_t { kLand = 1, kComplete = 2, kControl = 3 };

// The finaliser of a 64-bit mix: each input bit moves about half of the output bits.
uint64_t mix(uint64_t x) {
  x ^= x >> 33;
  x *= 0xFF51AFD7ED558CCDu;
  x ^= x >> 33;
  x *= 0xC4CEB9FE1A85EC53u;
  return x ^ (x >> 33);
}

}  // namespace

LinkModel::LinkModel(const EmulatedOptions& options, Rank self, int32_t ranks)
    : options_(options),
      self_(self),
      is_ordered_(options.personality == Personality::rc),
      ways_(static_cast<size_t>(ranks)) {}

std::chrono::nanoseconds LinkModel::draw(Rank peer, uint64_t number, uint32_t what,
                                         std::chrono::nanoseconds below) const {
  if (below.count() <= 0) return std::chrono::nanoseconds::zero();
  const uint64_t way = (static_cast<uint64_t>(self_.value) << 32) | static_cast<uint32_t>(peer.value);
  const uint64_t bits = mix(options_.seed ^ mix(way ^ mix(number * 4 + what)));
  return std::chrono::nanoseconds(static_cast<int64_t>(bits % static_cast<uint64_t>(below.count())));
}

LinkModel::Time LinkModel::leave(uint64_t bytes, Time now) {
  if (options_.bandwidth_bytes_per_s <= 0) return now;
  const auto ns = static_cast<int64_t>(static_cast<double>(bytes) / options_.bandwidth_bytes_per_s * 1e9);
  free_at_ = std::max(now, free_at_) + std::chrono::nanoseconds(ns);
  return free_at_;
}

LinkModel::Times LinkModel::schedule(const WriteRequest& request, Time now) {
  Way& way = ways_[static_cast<size_t>(request.peer.value)];
  const uint64_t number = way.posted++;
  const uint64_t bytes = request.kind == RequestKind::write_value ? sizeof(uint64_t) : request.bytes;
  Time landed = leave(bytes, now) + options_.latency;
  if (!is_ordered_) landed += draw(request.peer, number, kLand, options_.reorder);
  if (request.is_control()) landed += draw(request.peer, number, kControl, options_.control_delay);
  if (is_ordered_) landed = std::max(landed, way.last_landed);
  way.last_landed = landed;

  Time completed = landed + options_.latency;
  if (!is_ordered_) completed += draw(request.peer, number, kComplete, options_.completion_delay);
  if (is_ordered_) completed = std::max(completed, way.last_completed);
  way.last_completed = completed;
  return {landed, completed};
}

}  // namespace tilewire

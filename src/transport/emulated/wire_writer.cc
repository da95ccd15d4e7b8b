#include "transport/emulated/wire_writer.h"

#include <atomic>

namespace tilewire {

bool WireWriter::begin(const WriteRequest& request) {
  if (begun_ - landed_ >= ring_.entry_count && begun_ - landed() >= ring_.entry_count) return false;
  const WireMove move{.peer = request.peer,
                      .is_value = request.kind == RequestKind::write_value,
                      .units = static_cast<uint32_t>(request.bytes / kWireUnitBytes),
                      .src_offset = request.src_offset,
                      .dst_offset = request.dst_offset,
                      .value = request.value};
  const WireEntry packed = pack(move, ring_.lap_bit(begun_));
  WireEntry& entry = ring_.entry(begun_);
  for (int i = 0; i < 4; ++i) std::atomic_ref(entry.words[i]).store(packed.words[i], std::memory_order_release);
  ++begun_;
  return true;
}

uint64_t WireWriter::landed() {
  landed_ = std::atomic_ref(ring_.header->landed).load(std::memory_order_acquire);
  return landed_;
}

}  // namespace tilewire

#include "transport/arrival_sink.h"

#include "memory/words.h"

namespace tilewire {

bool WordSink::deliver(const Arrival& arrival) {
  publish_max(base_, layout_, arrival.word, arrival.epoch);
  return true;
}

size_t ArrivalDrain::drain(std::span<Arrival> out) {
  size_t taken = 0;
  PackedCommand packed;
  while (taken < out.size() && consumer_.try_take(packed)) {
    out[taken++] = {static_cast<uint32_t>(packed.first), packed.second};
  }
  consumer_.release();
  return taken;
}

}  // namespace tilewire

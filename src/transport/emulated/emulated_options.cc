#include "transport/emulated/emulated_options.h"

#include <fmt/format.h>
#include <tilewire/error.h>

namespace tilewire {

const char* to_string(Personality personality) {
  switch (personality) {
    case Personality::rc: return "rc";
    case Personality::relaxed: return "relaxed";
    case Personality::srd: return "srd";
  }
  return "unknown";
}

Personality parse_personality(std::string_view text) {
  for (const Personality p : {Personality::rc, Personality::relaxed, Personality::srd}) {
    if (text == to_string(p)) return p;
  }
  throw Error(ErrorKind::invalid_argument, {.what = "the emulated transport has no such personality",
                                            .values = fmt::format("emulated_personality = {}", text),
                                            .limit = "rc, relaxed or srd"});
}

EmulatedOptions emulated_options(const Options& options) {
  EmulatedOptions emulated;
  emulated.personality = parse_personality(options.emulated_personality);
  emulated.bandwidth_bytes_per_s = options.emulated_bandwidth_gbps * 1e9 / 8;
  emulated.latency = std::chrono::nanoseconds(static_cast<int64_t>(options.emulated_latency_us * 1e3));
  emulated.seed = static_cast<uint64_t>(options.emulated_seed);
  return emulated;
}

}  // namespace tilewire

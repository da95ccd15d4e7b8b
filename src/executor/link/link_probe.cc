#include "executor/link/link_probe.h"

#include <algorithm>

#include "transport/bootstrap/byte_codec.h"

namespace tilewire {
namespace {

constexpr uint64_t kEpochsOfAPart = 64;

}  // namespace

LinkProbe::LinkProbe(Session& session, const LinkKernelMaker& make_kernel)
    : session_(session),
      side_(session.gpu() != nullptr ? make_gpu_side(session, make_kernel) : make_host_side(session)) {}

uint64_t LinkProbe::told_by(Rank rank, uint64_t mine) {
  ByteWriter writer;
  writer.u64(mine);
  const std::vector<Bytes> all = session_.control().allgather({.kind = "link"}, writer.take(), session_.deadline());
  ByteReader reader(all[static_cast<size_t>(rank.value)], "link");
  return reader.u64();
}

LinkOutcome LinkProbe::run(const LinkSeries& series) {
  session_.control().barrier("link", session_.deadline());
  LinkOutcome outcome = side_->run(series);
  session_.control().barrier("link", session_.deadline());
  return outcome;
}

LinkLatency LinkProbe::latency(Rank from, Rank to, int rounds) {
  constexpr int kWarm = 20;
  LinkOutcome outcome = run({.from = from, .to = to, .epochs = static_cast<uint64_t>(kWarm + rounds)});
  std::vector<uint64_t>& trips = outcome.trip_ns;
  if (!trips.empty()) trips.erase(trips.begin(), trips.begin() + kWarm);
  std::sort(trips.begin(), trips.end());
  const auto half_us = [&](size_t percent) {
    const uint64_t mine = trips.empty() ? 0 : trips[(trips.size() - 1) * percent / 100];
    return static_cast<double>(told_by(from, mine)) / 2e3;
  };
  const double median = half_us(50);
  return {.median_us = median, .p99_us = half_us(99)};
}

double LinkProbe::bandwidth_gbps(Rank from, Rank to, int64_t chunk_bytes, double seconds) {
  const auto most = static_cast<uint64_t>(std::clamp<int64_t>(kMostBytes / chunk_bytes, 1, kChunks));
  // More and more, until it takes long enough; all ranks hear the same times, so all go on alike.
  for (uint64_t chunks = 4;; chunks *= 4) {
    const uint64_t of_an_epoch = std::min(chunks, most), epochs = chunks / of_an_epoch;
    const LinkOutcome outcome = run({.from = from,
                                     .to = to,
                                     .epochs = epochs,
                                     .chunks = static_cast<int32_t>(of_an_epoch),
                                     .chunk_bytes = chunk_bytes});
    const auto ns = static_cast<double>(told_by(from, outcome.ns));
    const double bits = 8.0 * static_cast<double>(epochs * of_an_epoch) * static_cast<double>(chunk_bytes);
    if (ns * 1e-9 > seconds / 3) return bits / ns;
  }
}

LinkChecks LinkProbe::ordering(Rank from, Rank to, uint64_t messages, int64_t bytes) {
  LinkSeries series{.from = from,
                    .to = to,
                    .chunks = static_cast<int32_t>(std::clamp<int64_t>(kMostBytes / bytes, 1, kChunks)),
                    .chunk_bytes = bytes,
                    .seed = 0x5457};
  const auto of_an_epoch = static_cast<uint64_t>(series.chunks);
  const uint64_t epochs = (messages + of_an_epoch - 1) / of_an_epoch;
  uint64_t wrong = 0;
  // In parts, so that those who only look on wait for a part at a time.
  for (uint64_t done = 0; done < epochs; done += kEpochsOfAPart) {
    series.epochs = std::min(kEpochsOfAPart, epochs - done);
    wrong += run(series).wrong;
  }
  return {.messages = epochs * of_an_epoch, .wrong = told_by(to, wrong)};
}

}  // namespace tilewire

#include "executor/link/link_probe.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <chrono>

#include "memory/words.h"
#include "transport/bootstrap/byte_codec.h"

namespace tilewire {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kEpochsOfAPart = 64;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Word `i` of chunk `c` of epoch `e`: no two of a run are alike.
uint64_t content(uint64_t seed, Epoch e, int32_t c, int64_t i) {
  uint64_t x = seed + e * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(c) * 0xbf58476d1ce4e5b9 + static_cast<uint64_t>(i);
  x = (x ^ (x >> 31)) * 0x94d049bb133111eb;
  return x ^ (x >> 29);
}

}  // namespace

LinkProbe::LinkProbe(Session& session) : session_(session), waiter_(session.arena().base(), session.wait_options()) {
  if (session.arena().is_host_accessible()) return;
  throw Error(ErrorKind::invalid_argument, {.what = "links are measured with host memory",
                                            .values = "device = cuda",
                                            .advice = "leave TILEWIRE_DEVICE out for it"});
}

uint64_t LinkProbe::told_by(Rank rank, uint64_t mine) {
  ByteWriter writer;
  writer.u64(mine);
  const std::vector<Bytes> all = session_.control().allgather({.kind = "link"}, writer.take(), session_.deadline());
  ByteReader reader(all[static_cast<size_t>(rank.value)], "link");
  return reader.u64();
}

void LinkProbe::post(Ring ring, const Command& command) {
  wait([&] { return session_.ring(ring).try_post(command); }, "room in a command ring", me());
}

template <class Ready>
void LinkProbe::wait(Ready&& ready, const char* what, Rank peer) {
  const auto text = [&] { return fmt::format("rank {} waited for {} (rank {})", me().value, what, peer.value); };
  switch (waiter_.wait(ready, text)) {
    case WaitResult::ready: return;
    case WaitResult::deadline: session_.fail(ErrorKind::deadline, text());
    case WaitResult::aborted: break;
  }
  session_.await_verdict();
  session_.throw_if_dead();
}

void LinkProbe::wait_word(Rank source, Chunk chunk, Epoch e) {
  const Arena& arena = session_.arena();
  const uint32_t word = arena.layout().flags.chunk(0, source, chunk);
  wait([&] { return has_reached(arena.base(), arena.layout(), word, e); }, "a message", source);
}

void LinkProbe::wait_sent(Epoch e) {
  wait([&] { return load_sent(session_.arena().control()) >= e; }, "its own messages to land", me());
}

Epoch LinkProbe::begin() { return session_.next_epoch(); }

void LinkProbe::end(Epoch e) {
  for (int32_t r = 0; r < kRings; ++r) post(static_cast<Ring>(r), {.kind = CommandKind::call_end, .epoch = e});
}

void LinkProbe::signal(Rank to, Chunk chunk) {
  post(Ring::send,
       {.kind = CommandKind::signal, .peer = to, .word = session_.arena().layout().flags.chunk(0, me(), chunk)});
}

// A sender may be two epochs ahead of what was looked at: there are two halves.
void LinkProbe::send(Rank to, Epoch e, const Batch& batch) {
  std::byte* half = session_.arena().base() + session_.arena().layout().half_offset(e);
  const auto units = static_cast<uint32_t>(batch.chunk_bytes / kWireUnitBytes);
  for (int32_t c = 0; c < batch.chunks; ++c) {
    auto* words = reinterpret_cast<uint64_t*>(half + c * batch.chunk_bytes);
    for (int64_t i = 0; batch.seed != 0 && i < batch.chunk_bytes / 8; ++i) words[i] = content(batch.seed, e, c, i);
    const uint64_t at = static_cast<uint64_t>(c) * units;
    post(Ring::send, {.kind = CommandKind::write,
                      .peer = to,
                      .word = session_.arena().layout().flags.chunk(0, me(), Chunk{c}),
                      .units = units,
                      .src_unit = at,
                      .dst_unit = at});
  }
}

uint64_t LinkProbe::receive(Rank from, Epoch e, const Batch& batch) {
  const std::byte* half = session_.arena().base() + session_.arena().layout().half_offset(e);
  uint64_t wrong = 0;
  for (int32_t c = 0; c < batch.chunks; ++c) {
    wait_word(from, Chunk{c}, e);
    if (batch.seed == 0) continue;
    const auto* words = reinterpret_cast<const uint64_t*>(half + c * batch.chunk_bytes);
    bool is_whole = true;
    for (int64_t i = 0; i < batch.chunk_bytes / 8; ++i) is_whole &= words[i] == content(batch.seed, e, c, i);
    wrong += is_whole ? 0 : 1;
  }
  return wrong;
}

// Gives the seconds on the sender, or how many messages were wrong on the receiver.
double LinkProbe::time_epochs(Rank from, Rank to, const Batch& batch, uint64_t epochs) {
  session_.control().barrier("link", session_.deadline());
  const auto begun = Clock::now();
  const Epoch first = session_.epoch() + 1;
  double result = 0;
  Epoch last = first;
  for (uint64_t i = 0; i < epochs; ++i) {
    const Epoch e = last = begin();
    if (me() == from) {
      if (e >= first + 2) wait_word(to, Chunk{0}, e - 2);
      if (e > 2) wait_sent(e - 2);
      send(to, e, batch);
    } else if (me() == to) {
      result += static_cast<double>(receive(from, e, batch));
      signal(from, Chunk{0});
    }
    end(e);
  }
  if (me() == from) {
    wait_word(to, Chunk{0}, last);
    result = seconds_since(begun);
  }
  wait_sent(last);
  session_.control().barrier("link", session_.deadline());
  return result;
}

LinkLatency LinkProbe::latency(Rank from, Rank to, int rounds) {
  constexpr int kWarm = 20;
  session_.control().barrier("link", session_.deadline());
  std::vector<uint64_t> half_ns;
  for (int i = 0; i < kWarm + rounds; ++i) {
    const Epoch e = begin();
    const auto begun = Clock::now();
    if (me() == from) signal(to, Chunk{0});
    if (me() == from) wait_word(to, Chunk{0}, e);
    if (me() == to) wait_word(from, Chunk{0}, e);
    if (me() == to) signal(from, Chunk{0});
    if (me() == from && i >= kWarm) half_ns.push_back(static_cast<uint64_t>(seconds_since(begun) * 1e9 / 2));
    end(e);
  }
  std::sort(half_ns.begin(), half_ns.end());
  const auto of = [&](size_t percent) {
    const uint64_t mine = half_ns.empty() ? 0 : half_ns[(half_ns.size() - 1) * percent / 100];
    return static_cast<double>(told_by(from, mine)) / 1e3;
  };
  const double median = of(50);
  return {.median_us = median, .p99_us = of(99)};
}

double LinkProbe::bandwidth_gbps(Rank from, Rank to, int64_t chunk_bytes, double seconds) {
  const auto most = static_cast<uint64_t>(std::clamp<int64_t>(kMostBytes / chunk_bytes, 1, kChunks));
  // More and more, until it takes long enough; all ranks hear the same times, so all go on alike.
  for (uint64_t chunks = 4;; chunks *= 4) {
    const uint64_t of_an_epoch = std::min(chunks, most), epochs = chunks / of_an_epoch;
    const Batch batch{.chunks = static_cast<int32_t>(of_an_epoch), .chunk_bytes = chunk_bytes};
    const double took = time_epochs(from, to, batch, epochs);
    const auto ns = static_cast<double>(told_by(from, static_cast<uint64_t>(took * 1e9)));
    const double bits = 8.0 * static_cast<double>(epochs * of_an_epoch) * static_cast<double>(chunk_bytes);
    if (ns * 1e-9 > seconds / 3) return bits / ns;
  }
}

LinkChecks LinkProbe::ordering(Rank from, Rank to, uint64_t messages, int64_t bytes) {
  const Batch batch{.chunks = static_cast<int32_t>(std::clamp<int64_t>(kMostBytes / bytes, 1, kChunks)),
                    .chunk_bytes = bytes,
                    .seed = 0x5457};
  const uint64_t epochs = (messages + static_cast<uint64_t>(batch.chunks) - 1) / static_cast<uint64_t>(batch.chunks);
  uint64_t wrong = 0;
  // In parts, so that those who only look on wait for a part at a time.
  for (uint64_t done = 0; done < epochs; done += kEpochsOfAPart) {
    const double result = time_epochs(from, to, batch, std::min(kEpochsOfAPart, epochs - done));
    wrong += me() == to ? static_cast<uint64_t>(result) : 0;
  }
  return {.messages = epochs * static_cast<uint64_t>(batch.chunks), .wrong = told_by(to, wrong)};
}

}  // namespace tilewire

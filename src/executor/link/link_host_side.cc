#include <fmt/format.h>
#include <tilewire/error.h>

#include <chrono>

#include "executor/link/link_side.h"
#include "memory/wait.h"
#include "memory/words.h"

namespace tilewire {
namespace {

using Clock = std::chrono::steady_clock;

uint64_t ns_since(Clock::time_point begin) {
  return static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - begin).count());
}

class HostSide final : public LinkSide {
 public:
  explicit HostSide(Session& session)
      : session_(session), frame_(session.frame(0)), waiter_(session.arena().base(), session.wait_options()) {}

  LinkOutcome run(const LinkSeries& series) override;

 private:
  void post(Ring ring, const Command& command) {
    wait([&] { return session_.ring(ring).try_post(command); }, "room in a command ring", frame_.me);
  }
  template <class Ready>
  void wait(Ready&& ready, const char* what, Rank peer);
  void wait_word(Rank source, int32_t chunk, Epoch e) {
    const uint32_t word = link_word(frame_, source, chunk);
    wait([&] { return has_reached(session_.arena().base(), frame_.arena, word, e); }, "a message", source);
  }
  void wait_sent(Epoch e) {
    wait([&] { return load_sent(session_.arena().control()) >= e; }, "its own messages to land", frame_.me);
  }
  std::byte* half(Epoch e) const { return session_.arena().base() + frame_.arena.half_offset(e); }
  void send(const LinkSeries& series, Epoch e, Epoch first);
  uint64_t receive(const LinkSeries& series, Epoch e);

  Session& session_;
  CallFrame frame_;
  HostWaiter waiter_;
};

template <class Ready>
void HostSide::wait(Ready&& ready, const char* what, Rank peer) {
  const auto text = [&] { return fmt::format("rank {} waited for {} (rank {})", frame_.me.value, what, peer.value); };
  switch (waiter_.wait(ready, text)) {
    case WaitResult::ready: return;
    case WaitResult::deadline: session_.fail(ErrorKind::deadline, text());
    case WaitResult::aborted: break;
  }
  session_.await_verdict();
  session_.throw_if_dead();
}

// There are two halves, so a sender may be two epochs ahead of what was looked at.
void HostSide::send(const LinkSeries& series, Epoch e, Epoch first) {
  if (e >= first + 2) wait_word(series.to, 0, e - 2);
  if (e > 2) wait_sent(e - 2);
  for (int32_t c = 0; c < series.chunks; ++c) {
    auto* words = reinterpret_cast<uint64_t*>(half(e) + c * series.chunk_bytes);
    const int64_t count = series.seed != 0 ? series.chunk_bytes / int64_t{sizeof(uint64_t)} : 0;
    for (int64_t i = 0; i < count; ++i) words[i] = link_content(series.seed, e, c, i);
    post(Ring::send, link_write(frame_, series, c));
  }
}

// Each chunk is looked at as soon as its word is there. Gives how many were not whole.
uint64_t HostSide::receive(const LinkSeries& series, Epoch e) {
  if (series.chunks == 0) wait_word(series.from, 0, e);
  uint64_t wrong = 0;
  for (int32_t c = 0; c < series.chunks; ++c) {
    wait_word(series.from, c, e);
    const auto* words = reinterpret_cast<const uint64_t*>(half(e) + c * series.chunk_bytes);
    const int64_t count = series.seed != 0 ? series.chunk_bytes / int64_t{sizeof(uint64_t)} : 0;
    bool is_whole = true;
    for (int64_t i = 0; i < count; ++i) is_whole &= words[i] == link_content(series.seed, e, c, i);
    wrong += is_whole ? 0 : 1;
  }
  return wrong;
}

LinkOutcome HostSide::run(const LinkSeries& series) {
  LinkOutcome outcome;
  const auto begun = Clock::now();
  const Epoch first = session_.epoch() + 1, last = session_.epoch() + series.epochs;
  for (uint64_t i = 0; i < series.epochs; ++i) {
    const Epoch e = session_.next_epoch();
    if (frame_.me == series.from && series.chunks > 0) send(series, e, first);
    if (frame_.me == series.from && series.chunks == 0) {
      const auto left = Clock::now();
      post(Ring::send, link_signal(frame_, series.to));
      wait_word(series.to, 0, e);
      outcome.trip_ns.push_back(ns_since(left));
    }
    if (frame_.me == series.to) {
      outcome.wrong += receive(series, e);
      post(Ring::send, link_signal(frame_, series.from));
    }
    for (int32_t r = 0; r < kRings; ++r) post(static_cast<Ring>(r), {.kind = CommandKind::call_end, .epoch = e});
  }
  if (frame_.me == series.from) {
    wait_word(series.to, 0, last);
    outcome.ns = ns_since(begun);
  }
  wait_sent(last);
  return outcome;
}

}  // namespace

std::unique_ptr<LinkSide> make_host_side(Session& session) { return std::make_unique<HostSide>(session); }

}  // namespace tilewire

// For tests: a transport whose requests land and complete when the test says so.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "transport/transport.h"

namespace tilewire {

class ManualTransport final : public Transport {
 public:
  explicit ManualTransport(Caps caps) : caps_(std::move(caps)) {}

  const Caps& caps() const override { return caps_; }
  void register_arena(uint64_t, uint64_t) override {}
  std::vector<std::byte> address() override { return {}; }
  void connect(std::span<const std::vector<std::byte>>, std::chrono::nanoseconds) override {}
  size_t post(std::span<const WriteRequest> requests) override {
    const auto is_for_full = [this](const WriteRequest& request) { return request.peer == full_peer; };
    const auto first = std::find_if(requests.begin(), requests.end(), is_for_full);
    const size_t taken = std::min(static_cast<size_t>(first - requests.begin()), room);
    room -= taken;
    posted.insert(posted.end(), requests.begin(), requests.begin() + static_cast<ptrdiff_t>(taken));
    return taken;
  }
  size_t poll(std::span<Event> events) override {
    size_t n = 0;
    for (; n < events.size() && !to_report.empty(); ++n) {
      events[n] = to_report.front();
      to_report.pop_front();
    }
    return n;
  }
  std::vector<std::byte> new_keys() override { return own_keys; }
  void learn_keys(std::span<const std::vector<std::byte>> by_rank) override {
    learnt.assign(by_rank.begin(), by_rank.end());
  }
  std::string describe_status(int32_t status) const override { return status == 12 ? "retries exceeded" : "other"; }
  void close() noexcept override {}

  void complete(size_t number) {
    to_report.push_back({.kind = EventKind::completed, .peer = posted[number].peer, .id = posted[number].id});
  }
  void fail(size_t number, int32_t status) {
    to_report.push_back(
        {.kind = EventKind::failed, .peer = posted[number].peer, .id = posted[number].id, .status = status});
  }
  void fail_own(Rank to, int32_t status) {
    to_report.push_back({.kind = EventKind::own_failed, .peer = to, .status = status});
  }
  void arrive(Rank from, uint32_t immediate) {
    to_report.push_back({.kind = EventKind::arrived, .peer = from, .immediate = immediate});
  }

  std::vector<WriteRequest> posted;  // all requests ever taken
  std::deque<Event> to_report;
  size_t room = SIZE_MAX;         // requests it still takes
  std::optional<Rank> full_peer;  // that takes none
  std::vector<std::byte> own_keys;
  std::vector<std::vector<std::byte>> learnt;

 private:
  Caps caps_;
};

}  // namespace tilewire

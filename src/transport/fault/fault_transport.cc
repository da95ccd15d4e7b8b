#include "transport/fault/fault_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <stdexcept>

#include "transport/fault/fault_script.h"

namespace tilewire {
namespace {

using Clock = std::chrono::steady_clock;

// What one line of the script has seen so far.
struct FaultState {
  Fault fault;
  size_t line = 0;
  uint64_t matched = 0;  // requests it is about
  std::optional<Clock::time_point> began;

  bool is_about(Rank peer) const { return !fault.peer || *fault.peer == peer; }
};

class FaultTransport final : public Transport {
 public:
  FaultTransport(std::unique_ptr<Transport> inner, const std::vector<Fault>& faults)
      : inner_(std::move(inner)), come_(faults.size()) {
    for (const Fault& fault : faults) {
      states_.push_back({.fault = fault, .line = states_.size(), .began = std::nullopt});
    }
  }

  const Caps& caps() const override { return inner_->caps(); }
  void register_arena(uint64_t begin, uint64_t bytes) override { inner_->register_arena(begin, bytes); }
  std::vector<std::byte> address() override { return inner_->address(); }
  void connect(std::span<const std::vector<std::byte>> addresses, std::chrono::nanoseconds deadline) override {
    inner_->connect(addresses, deadline);
  }
  void check_paths(const StepLimit& limit) override { inner_->check_paths(limit); }
  std::vector<std::byte> new_keys() override { return inner_->new_keys(); }
  void learn_keys(std::span<const std::vector<std::byte>> by_rank) override { inner_->learn_keys(by_rank); }
  size_t post(std::span<const WriteRequest> requests) override;
  size_t poll(std::span<Event> events) override;
  void look_at_devices(std::chrono::nanoseconds patience) override { inner_->look_at_devices(patience); }
  std::chrono::nanoseconds idle_hint() const override;
  std::string describe_status(int32_t status) const override;
  std::string describe_failure(const Event& event) const override {
    return is_own(event.status) ? describe_status(event.status) : inner_->describe_failure(event);
  }
  std::vector<NicInfo> nics() const override { return inner_->nics(); }
  std::vector<int> near_processors() const override { return inner_->near_processors(); }
  std::vector<uint64_t> faults_come() const override {
    std::vector<uint64_t> counts;
    counts.reserve(come_.size());
    for (const std::atomic<uint64_t>& count : come_) counts.push_back(count.load(std::memory_order_relaxed));
    return counts;
  }
  void close() noexcept override {
    held_.clear();
    failed_.clear();
    inner_->close();
  }

 private:
  enum class Fate : uint8_t { send, swallow, fail };
  struct Held {
    WriteRequest request;
    Clock::time_point due;
  };

  bool is_own(int32_t status) const;
  void note(const FaultState& state) { come_[state.line].fetch_add(1, std::memory_order_relaxed); }
  void count_step();
  bool is_stalled();
  bool refuses_post();
  Fate fate_of(const WriteRequest& request);
  void lose_reports();
  std::chrono::nanoseconds delay_of(const WriteRequest& request);
  bool must_wait_behind_held(const WriteRequest& request) const;
  void send_held();
  // One request to the wrapped transport; false when that has no room.
  bool send(WriteRequest request);
  void deny(std::span<Event> events);
  size_t filter(std::span<Event> events);

  std::unique_ptr<Transport> inner_;
  std::vector<FaultState> states_;
  std::vector<std::atomic<uint64_t>> come_;  // by line of the script
  uint64_t steps_ = 0;
  uint64_t taken_ = 0;  // requests taken from the caller
  std::deque<Held> held_;
  std::deque<Event> failed_;
};

void FaultTransport::count_step() {
  ++steps_;
  for (const FaultState& state : states_) {
    if (state.fault.kind != FaultKind::die) continue;
    if (state.fault.count > 0 ? state.fault.count == steps_ : taken_ >= state.fault.after) {
      note(state);
      throw std::runtime_error(fmt::format("the fault script ends this thread at step {}", steps_));
    }
  }
}

bool FaultTransport::is_stalled() {
  bool stalled = false;
  for (FaultState& state : states_) {
    if (state.fault.kind != FaultKind::stall || taken_ < state.fault.after) continue;
    if (!state.began) state.began = Clock::now();
    if (state.fault.duration && Clock::now() - *state.began >= *state.fault.duration) continue;
    note(state);
    stalled = true;
  }
  return stalled;
}

bool FaultTransport::refuses_post() {
  for (FaultState& state : states_) {
    if (state.fault.kind != FaultKind::full || taken_ < state.fault.after) continue;
    if (state.matched < state.fault.count) {
      ++state.matched;
      note(state);
      return true;
    }
  }
  return false;
}

FaultTransport::Fate FaultTransport::fate_of(const WriteRequest& request) {
  Fate fate = Fate::send;
  for (FaultState& state : states_) {
    const FaultKind kind = state.fault.kind;
    if ((kind != FaultKind::drop && kind != FaultKind::fail) || !state.is_about(request.peer)) continue;
    if (state.fault.is_of_data && request.is_control()) continue;
    ++state.matched;
    if (kind == FaultKind::drop && state.matched > state.fault.after) {
      note(state);
      fate = Fate::swallow;
    }
    if (kind == FaultKind::fail && state.matched == state.fault.count) {
      note(state);
      failed_.push_back(
          {.kind = EventKind::failed, .peer = request.peer, .id = request.id, .status = state.fault.status});
      fate = Fate::fail;
    }
  }
  return fate;
}

void FaultTransport::lose_reports() {
  for (FaultState& state : states_) {
    if (state.fault.kind != FaultKind::report || taken_ < state.fault.after || state.matched > 0) continue;
    ++state.matched;
    note(state);
    failed_.push_back({.kind = EventKind::own_failed, .peer = *state.fault.peer, .status = state.fault.status});
  }
}

std::chrono::nanoseconds FaultTransport::delay_of(const WriteRequest& request) {
  std::chrono::nanoseconds delay{0};
  if (!request.is_control()) return delay;
  for (const FaultState& state : states_) {
    if (state.fault.kind != FaultKind::delay || !state.is_about(request.peer)) continue;
    note(state);
    delay += *state.fault.duration;
  }
  return delay;
}

bool FaultTransport::must_wait_behind_held(const WriteRequest& request) const {
  return caps().ordered_writes &&
         std::any_of(held_.begin(), held_.end(), [&](const Held& held) { return held.request.peer == request.peer; });
}

bool FaultTransport::send(WriteRequest request) {
  for (FaultState& state : states_) {
    if (state.fault.kind != FaultKind::tear || request.bytes == 0 || !state.is_about(request.peer)) continue;
    if (++state.matched != state.fault.count) continue;
    note(state);
    request.bytes /= 2;
  }
  return inner_->post({&request, 1}) == 1;
}

void FaultTransport::send_held() {
  const Clock::time_point now = Clock::now();
  while (!held_.empty() && held_.front().due <= now && send(held_.front().request)) held_.pop_front();
}

size_t FaultTransport::post(std::span<const WriteRequest> requests) {
  count_step();
  if (states_.empty()) return inner_->post(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    if (is_stalled() || refuses_post()) return i;
    const WriteRequest& request = requests[i];
    const std::chrono::nanoseconds delay = delay_of(request);
    if (delay.count() > 0 || must_wait_behind_held(request)) {
      if (fate_of(request) == Fate::send) held_.push_back({request, Clock::now() + delay});
    } else {
      // The fate is drawn once a request, so it must not be drawn for one that is not taken.
      const std::vector<FaultState> before = states_;
      if (fate_of(request) == Fate::send && !send(request)) {
        states_ = before;
        return i;
      }
    }
    ++taken_;
  }
  return requests.size();
}

size_t FaultTransport::poll(std::span<Event> events) {
  count_step();
  if (states_.empty()) return inner_->poll(events);
  if (is_stalled()) return 0;
  send_held();
  lose_reports();
  size_t n = 0;
  for (; n < events.size() && !failed_.empty(); ++n) {
    events[n] = failed_.front();
    failed_.pop_front();
  }
  const std::span<Event> rest = events.subspan(n);
  const std::span<Event> come = rest.first(inner_->poll(rest));
  deny(come);
  return n + filter(come);
}

void FaultTransport::deny(std::span<Event> events) {
  for (FaultState& state : states_) {
    if (state.fault.kind != FaultKind::deny) continue;
    for (Event& event : events) {
      if (event.kind != EventKind::completed || !state.is_about(event.peer)) continue;
      if (++state.matched != state.fault.count) continue;
      note(state);
      event.kind = EventKind::failed;
      event.status = state.fault.status;
    }
  }
}

// Takes out the completions that are kept back; returns how many events are left.
size_t FaultTransport::filter(std::span<Event> events) {
  const auto is_withheld = [this](const Event& event) {
    bool withheld = false;
    for (FaultState& state : states_) {
      if (state.fault.kind != FaultKind::withhold || event.kind != EventKind::completed) continue;
      if (!state.is_about(event.peer) || ++state.matched <= state.fault.after) continue;
      note(state);
      withheld = true;
    }
    return withheld;
  };
  return static_cast<size_t>(std::remove_if(events.begin(), events.end(), is_withheld) - events.begin());
}

std::chrono::nanoseconds FaultTransport::idle_hint() const {
  return states_.empty() ? inner_->idle_hint() : std::chrono::nanoseconds::zero();
}

bool FaultTransport::is_own(int32_t status) const {
  return std::any_of(states_.begin(), states_.end(), [&](const FaultState& state) {
    const FaultKind kind = state.fault.kind;
    const bool has_status = kind == FaultKind::fail || kind == FaultKind::deny || kind == FaultKind::report;
    return has_status && state.fault.status == status;
  });
}

std::string FaultTransport::describe_status(int32_t status) const {
  return is_own(status) ? "injected by the fault script" : inner_->describe_status(status);
}

}  // namespace

std::unique_ptr<Transport> make_fault_transport(std::unique_ptr<Transport> inner, std::string_view script) {
  return std::make_unique<FaultTransport>(std::move(inner), parse_fault_script(script));
}

}  // namespace tilewire

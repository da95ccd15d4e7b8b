#include "transport/emulated/emulated_transport.h"

#include <fmt/format.h>
#include <tilewire/error.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <queue>
#include <random>

#include "base/check.h"
#include "transport/emulated/local_reach.h"
#include "transport/emulated/link_model.h"
#include "transport/emulated/receive_queue.h"
#include "transport/peer_agreement.h"
#include "transport/registered_ranges.h"

namespace tilewire {
namespace {

using Time = LinkModel::Time;

// What poll() moves before it gives the proxy a look at its rings again.
constexpr uint64_t kBytesPerPoll = 1u << 20;

// What a rank tells its peers. Same machine, so plain memory.
struct Address {
  uint64_t magic = 0x54574D4544313031;
  uint64_t process = 0;  // random, one a process: tells threads of one process from processes
  uint64_t queue = 0;
  uint32_t entries = 0;
  Personality personality = Personality::rc;
  uint8_t padding[3] = {};
};

// Not the same after a fork.
uint64_t process_number() {
  static const uint64_t number = (uint64_t{std::random_device{}()} << 32) | std::random_device{}();
  return number ^ static_cast<uint64_t>(getpid());
}

Caps caps_of(const EmulatedOptions& options) {
  return {.name = fmt::format("emulated {}", to_string(options.personality)),
          .ordered_writes = options.personality == Personality::rc,
          .value_writes = options.personality != Personality::srd,
          .write_with_immediate = options.personality != Personality::relaxed,
          .max_outstanding = options.max_outstanding};
}

class EmulatedTransport final : public Transport {
 public:
  EmulatedTransport(const TransportContext& context, const EmulatedOptions& options)
      : context_(context),
        options_(options),
        caps_(caps_of(options)),
        model_(options, context.rank, context.ranks),
        flights_(options.max_outstanding),
        queue_(ReceiveQueue::create(context.rank, options.receive_entries)),
        peer_queues_(static_cast<size_t>(context.ranks)) {
    for (uint32_t i = options.max_outstanding; i > 0; --i) free_.push_back(i - 1);
    // Before connect(), because the descriptors of arenas need not live longer than that.
    const LocalReach* reach = context.local_reach.get();
    writer_ = reach != nullptr && reach->make_writer ? reach->make_writer() : make_host_arena_writer(context, where());
  }
  ~EmulatedTransport() override { close(); }

  const Caps& caps() const override { return caps_; }
  void register_arena(uint64_t begin, uint64_t bytes) override { ranges_.add(begin, bytes, context_.arena_bytes); }
  std::vector<std::byte> address() override;
  void connect(std::span<const std::vector<std::byte>> addresses, std::chrono::nanoseconds deadline) override;
  size_t post(std::span<const WriteRequest> requests) override;
  size_t poll(std::span<Event> events) override;
  std::chrono::nanoseconds idle_hint() const override;
  std::string describe_status(int32_t status) const override { return fmt::format("status {}", status); }
  void close() noexcept override;

 private:
  struct Flight {
    WriteRequest request;
    Time completed;
  };
  // A flight that waits for a time; those of one time keep their order of posting.
  struct Due {
    Time time;
    uint64_t number;
    uint32_t flight;
    friend bool operator>(const Due& a, const Due& b) {
      return a.time != b.time ? a.time > b.time : a.number > b.number;
    }
  };
  using DueQueue = std::priority_queue<Due, std::vector<Due>, std::greater<>>;

  Address read_address(Rank peer, std::span<const std::byte> bytes) const;
  void check(const WriteRequest& request) const;
  void begin_due(Time now);
  void take_landed();
  size_t take_arrivals(std::span<Event> events);
  size_t take_completions(std::span<Event> events, Time now);
  std::string where() const { return fmt::format("{} transport of rank {}", caps_.name, context_.rank.value); }

  TransportContext context_;
  EmulatedOptions options_;
  Caps caps_;
  LinkModel model_;
  RegisteredRanges ranges_;
  std::vector<Flight> flights_;
  std::vector<uint32_t> free_;
  uint64_t posted_ = 0;
  DueQueue landing_;
  std::deque<Due> moving_;  // begun by the writer, in that order
  uint64_t landed_ = 0;     // of all that were begun
  DueQueue completing_;
  std::unique_ptr<ArenaWriter> writer_;
  std::shared_ptr<ReceiveQueue> queue_;
  std::vector<std::shared_ptr<ReceiveQueue>> peer_queues_;  // by rank
  bool is_connected_ = false;
};

std::vector<std::byte> EmulatedTransport::address() {
  const Address address{.process = process_number(),
                        .queue = queue_->number(),
                        .entries = queue_->entries(),
                        .personality = options_.personality};
  const auto* bytes = reinterpret_cast<const std::byte*>(&address);
  return {bytes, bytes + sizeof(address)};
}

Address EmulatedTransport::read_address(Rank peer, std::span<const std::byte> bytes) const {
  Address address;
  if (bytes.size() == sizeof(address)) std::memcpy(&address, bytes.data(), sizeof(address));
  if (bytes.size() != sizeof(address) || address.magic != Address{}.magic ||
      address.personality != options_.personality) {
    refuse_address(peer, bytes.size(), where(), "give every rank the same transport and emulated_personality");
  }
  return address;
}

void EmulatedTransport::connect(std::span<const std::vector<std::byte>> addresses, std::chrono::nanoseconds deadline) {
  TILEWIRE_CHECK_EQ(addresses.size(), peer_queues_.size(), ErrorKind::invalid_argument, "one address a rank");
  std::vector<UniqueFd> fds;
  const LocalReach* reach = context_.local_reach.get();
  if (reach != nullptr && reach->arena_bases.empty() && reach->exchange_fds) {
    fds = reach->exchange_fds("receive queue", queue_->fd(), deadline);
  }
  for (const Rank p : context_.peers) {
    const auto r = static_cast<size_t>(p.value);
    const Address address = read_address(p, addresses[r]);
    if (address.process == process_number()) {
      peer_queues_[r] = ReceiveQueue::find(address.queue);
    } else if (r < fds.size() && fds[r].is_open()) {
      peer_queues_[r] = ReceiveQueue::open(p, address.entries, fds[r].get());
    }
    TILEWIRE_CHECK(peer_queues_[r] != nullptr, ErrorKind::unavailable, "{}: no way to the receive queue of rank {}",
                   where(), p.value);
  }
  is_connected_ = true;
}

void EmulatedTransport::check(const WriteRequest& request) const {
  const auto r = static_cast<size_t>(request.peer.value);
  if (r >= peer_queues_.size() || peer_queues_[r] == nullptr) {
    throw Error(ErrorKind::invalid_argument, {.what = "a request is for a rank that is no peer",
                                              .where = where(),
                                              .values = fmt::format("peer = {}", request.peer.value)});
  }
  check_request(request, caps_, ranges_, where());
}

size_t EmulatedTransport::post(std::span<const WriteRequest> requests) {
  if (!is_connected_) return 0;
  const Time now = std::chrono::steady_clock::now();
  size_t taken = 0;
  for (const WriteRequest& request : requests) {
    if (free_.empty()) break;
    check(request);
    const LinkModel::Times times = model_.schedule(request, now);
    const uint32_t flight = free_.back();
    free_.pop_back();
    flights_[flight] = {request, times.completed};
    landing_.push({times.landed, posted_++, flight});
    ++taken;
  }
  return taken;
}

void EmulatedTransport::begin_due(Time now) {
  uint64_t moved_bytes = 0;
  while (!landing_.empty() && landing_.top().time <= now && moved_bytes < kBytesPerPoll) {
    const Due due = landing_.top();
    const WriteRequest& request = flights_[due.flight].request;
    if (!writer_->begin(request)) return;
    moved_bytes += request.bytes;
    landing_.pop();
    moving_.push_back(due);
  }
}

void EmulatedTransport::take_landed() {
  for (const uint64_t landed = writer_->landed(); landed_ < landed; ++landed_) {
    const Due due = moving_.front();
    const Flight& flight = flights_[due.flight];
    const WriteRequest& request = flight.request;
    // A full queue holds everything back, which keeps the order; its owner empties it without waiting for anyone.
    if (request.kind == RequestKind::write_with_immediate &&
        !peer_queues_[static_cast<size_t>(request.peer.value)]->push(context_.rank, request.immediate)) {
      return;
    }
    moving_.pop_front();
    completing_.push({flight.completed, due.number, due.flight});
  }
}

size_t EmulatedTransport::take_arrivals(std::span<Event> events) {
  size_t n = 0;
  while (n < events.size()) {
    Event event{.kind = EventKind::arrived, .peer = {}};
    if (!queue_->pop(event.peer, event.immediate)) break;
    events[n++] = event;
  }
  return n;
}

size_t EmulatedTransport::take_completions(std::span<Event> events, Time now) {
  size_t n = 0;
  for (; n < events.size() && !completing_.empty() && completing_.top().time <= now; ++n) {
    const uint32_t index = completing_.top().flight;
    completing_.pop();
    const WriteRequest& request = flights_[index].request;
    events[n] = {.kind = EventKind::completed, .peer = request.peer, .id = request.id};
    free_.push_back(index);
  }
  return n;
}

size_t EmulatedTransport::poll(std::span<Event> events) {
  if (!is_connected_) return 0;
  const size_t arrived = take_arrivals(events);
  if (landing_.empty() && moving_.empty() && completing_.empty()) return arrived;
  const Time now = std::chrono::steady_clock::now();
  begin_due(now);
  take_landed();
  return arrived + take_completions(events.subspan(arrived), now);
}

std::chrono::nanoseconds EmulatedTransport::idle_hint() const {
  if (!moving_.empty()) return std::chrono::nanoseconds::zero();
  if (landing_.empty() && completing_.empty()) return std::chrono::nanoseconds::max();
  Time next = Time::max();
  if (!landing_.empty()) next = std::min(next, landing_.top().time);
  if (!completing_.empty()) next = std::min(next, completing_.top().time);
  return std::max<std::chrono::nanoseconds>(next - std::chrono::steady_clock::now(), std::chrono::nanoseconds::zero());
}

void EmulatedTransport::close() noexcept {
  is_connected_ = false;
  landing_ = {};
  moving_.clear();
  completing_ = {};
  peer_queues_.clear();
  writer_.reset();
  queue_.reset();
}

}  // namespace

std::unique_ptr<Transport> make_emulated_transport(const TransportContext& context, const EmulatedOptions& options) {
  TILEWIRE_CHECK_GE(options.max_outstanding, 1, ErrorKind::invalid_argument, "emulated transport");
  return std::make_unique<EmulatedTransport>(context, options);
}

}  // namespace tilewire

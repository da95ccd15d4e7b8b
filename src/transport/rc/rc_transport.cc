#include "transport/rc/rc_transport.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/log.h"
#include "transport/event_list.h"
#include "transport/rc/address.h"
#include "transport/rc/checks.h"
#include "transport/rc/queue.h"
#include "transport/rc/rc_port.h"
#include "transport/verbs/arena_memory.h"
#include "transport/verbs/device_watch.h"
#include "transport/verbs/memory.h"
#include "transport/verbs/path_check.h"
#include "transport/verbs/pieces.h"
#include "transport/verbs/port.h"

namespace tilewire {
namespace {

using namespace verbs;

constexpr int kRcPollBatch = 32;
constexpr uint32_t kRcMostOutstanding = 8192;
// A request is cut where the device takes no longer message; so many parts always fit into a send queue.
constexpr uint64_t kRcMostParts = 4;

Caps caps_of(const RcOptions& options, const verbs::Port& port, size_t queues) {
  return {.name = "rc",
          .ordered_writes = options.signal == RcSignal::ordered,
          .value_writes = true,
          .write_with_immediate = options.signal != RcSignal::completion,
          .max_outstanding = static_cast<uint32_t>(
              std::clamp<uint64_t>(uint64_t{options.send_entries} * queues, 1, kRcMostOutstanding)),
          .max_write_bytes = port.attr.max_msg_sz * kRcMostParts};
}

class RcTransport final : public Transport {
 public:
  RcTransport(const TransportContext& context, const RcOptions& options, const Verbs& verbs, verbs::Port port);
  ~RcTransport() override { close(); }

  const Caps& caps() const override { return caps_; }
  void register_arena(uint64_t begin, uint64_t bytes) override;
  void unregister_arena(uint64_t begin, uint64_t bytes) override;
  std::vector<std::byte> address() override;
  void connect(std::span<const std::vector<std::byte>> addresses, std::chrono::nanoseconds deadline) override;
  void check_paths(const StepLimit& limit) override;
  std::vector<std::byte> new_keys() override;
  void learn_keys(std::span<const std::vector<std::byte>> by_rank) override;
  size_t post(std::span<const WriteRequest> requests) override;
  size_t poll(std::span<Event> events) override;
  void look_at_devices(std::chrono::nanoseconds patience) override {
    if (is_connected_) watch_.look(patience, where_);
  }
  std::string describe_status(int32_t status) const override;
  void close() noexcept override;

 private:
  struct Peer {
    verbs::PeerArena arena;
    std::vector<RcQueue*> queues{};  // by channel
    size_t next_channel = 0;
  };

  void make_queues();
  void connect_peer(Rank rank, const RcAddress& address);
  Peer& peer_of(Rank rank) { return peers_[static_cast<size_t>(rank.value)]; }
  bool try_post(const WriteRequest& request);
  void flush();
  void take_completions();
  std::vector<PathProof> path_proofs() const;
  const std::string& where() const { return where_; }

  TransportContext context_;
  const std::string where_ = fmt::format("rc transport of rank {}", context_.rank.value);
  RcOptions options_;
  const Verbs& verbs_;
  verbs::Port port_;
  verbs::DeviceWatch watch_;
  Caps caps_;
  Pd pd_;
  Cq cq_;
  verbs::ScratchMemory scratch_;
  ArenaMemory memory_;
  std::vector<std::unique_ptr<RcQueue>> queues_;
  std::vector<Peer> peers_;  // by rank
  std::vector<Piece> pieces_;
  std::vector<RcQueue*> chained_;
  EventList ready_;
  bool is_connected_ = false;
};

RcTransport::RcTransport(const TransportContext& context, const RcOptions& options, const Verbs& verbs,
                         verbs::Port port)
    : context_(context),
      options_(options),
      verbs_(verbs),
      port_(std::move(port)),
      watch_(verbs_, port_),
      caps_(caps_of(options, port_, context.peers.size() * static_cast<size_t>(options.channels))),
      pd_(verbs, verbs.alloc_pd(port_.context.get())),
      memory_(verbs, pd_.get(), context_, where_),
      peers_(static_cast<size_t>(context.ranks)) {
  TILEWIRE_CHECK(pd_, ErrorKind::resource, "{}: no protection domain on {}", where(), port_.name);
  if (!port_.gid.warning.empty()) log_once("rc gid " + port_.name, "{}: {}", port_.name, port_.gid.warning);
  if (options_.traffic_class != 0 && !port_.is_ethernet()) {
    log_once("rc traffic class " + port_.name,
             "{} is InfiniBand, where rc_traffic_class = {} has no meaning; see "
             "rc_service_level",
             port_.name, options_.traffic_class);
  }
  check_device_limits(port_, options_, context_, where());
  make_queues();
  log_info("rc: {}; {} queue pairs, signals by {}", port_.text(), queues_.size(), to_string(options_.signal));
}

void RcTransport::make_queues() {
  const size_t count = context_.peers.size() * static_cast<size_t>(options_.channels);
  const uint64_t bytes = RcQueueScratch::bytes(options_.send_entries);
  const auto entries = static_cast<int>(std::max<size_t>(1, count * RcQueue::completion_entries(options_)));
  cq_ = Cq(verbs_, verbs_.create_cq(port_.context.get(), entries, nullptr, nullptr, 0));
  TILEWIRE_CHECK(cq_, ErrorKind::resource, "{}: no completion queue of {} entries on {}", where(), entries, port_.name);
  scratch_ = verbs::ScratchMemory(verbs_, pd_.get(), std::max<uint64_t>(1, count) * bytes, where());
  for (const Rank rank : context_.peers) {
    Peer& peer = peer_of(rank);
    peer.arena.is_peer = true;
    for (int32_t channel = 0; channel < options_.channels; ++channel) {
      const auto number = static_cast<uint32_t>(queues_.size());
      queues_.push_back(std::make_unique<RcQueue>(
          RcQueue::Setup{.verbs = &verbs_,
                         .port = &port_,
                         .options = &options_,
                         .pd = pd_.get(),
                         .cq = cq_.get(),
                         .number = number,
                         .peer = rank,
                         .channel = channel,
                         .scratch = reinterpret_cast<RcQueueScratch*>(scratch_.base() + number * bytes),
                         .scratch_key = scratch_.lkey(),
                         .where = where()}));
      peer.queues.push_back(queues_.back().get());
    }
  }
  chained_.reserve(count);
  ready_.reserve(size_t{2} * static_cast<size_t>(entries));
}

void RcTransport::register_arena(uint64_t begin, uint64_t bytes) {
  memory_.add(begin, bytes, options_.relaxed_ordering && begin >= context_.strict_bytes);
}

void RcTransport::unregister_arena(uint64_t begin, uint64_t bytes) { memory_.remove(begin, bytes); }

std::vector<std::byte> RcTransport::address() {
  RcAddress address{.signal = options_.signal,
                    .channels = options_.channels,
                    .link_layer = port_.attr.link_layer,
                    .mtu = own_mtu(port_, options_),
                    .lid = port_.attr.lid,
                    .gid = port_.gid.gid,
                    .port = port_.name,
                    .arena = reinterpret_cast<uint64_t>(context_.arena),
                    .scratch_key = scratch_.rkey(),
                    .receive_entries = options_.receive_entries};
  for (const auto& queue : queues_) address.queues.push_back(queue->end());
  address.keys = memory_.untold_keys();
  return address.pack();
}

std::vector<std::byte> RcTransport::new_keys() { return pack_keys(memory_.untold_keys()); }

void RcTransport::learn_keys(std::span<const std::vector<std::byte>> by_rank) {
  learn_keys_of_peers(by_rank, context_, [this](Rank rank) -> PeerArena& { return peer_of(rank).arena; });
}

void RcTransport::connect_peer(Rank rank, const RcAddress& address) {
  check_agreement(port_, options_, rank, address, where());
  Peer& peer = peer_of(rank);
  peer.arena.address = address.arena;
  peer.arena.learn(address.keys);
  for (size_t channel = 0; channel < peer.queues.size(); ++channel) {
    const auto end = std::find_if(address.queues.begin(), address.queues.end(), [&](const RcQueueEnd& e) {
      return e.peer == context_.rank && std::cmp_equal(e.channel, channel);
    });
    TILEWIRE_CHECK(end != address.queues.end(), ErrorKind::mismatch, "{}: rank {} has no queue for this rank", where(),
                   rank.value);
    peer.queues[channel]->connect(address, *end);
  }
}

void RcTransport::connect(std::span<const std::vector<std::byte>> addresses, std::chrono::nanoseconds /*deadline*/) {
  TILEWIRE_CHECK_EQ(addresses.size(), peers_.size(), ErrorKind::invalid_argument, "one address a rank");
  for (const Rank rank : context_.peers) {
    connect_peer(rank, RcAddress::unpack(rank, addresses[static_cast<size_t>(rank.value)]));
  }
  is_connected_ = true;
}

std::vector<PathProof> RcTransport::path_proofs() const {
  std::vector<PathProof> proofs;
  for (const Rank rank : context_.peers) {
    const std::vector<RcQueue*>& queues = peers_[static_cast<size_t>(rank.value)].queues;
    const auto all = [&](auto&& is_so) { return std::all_of(queues.begin(), queues.end(), is_so); };
    proofs.push_back({.peer = rank,
                      .paths = queues.size(),
                      .is_acknowledged = all([](const RcQueue* queue) { return queue->is_idle(); }),
                      .is_content_right = all([](const RcQueue* queue) { return queue->has_probe(); })});
  }
  return proofs;
}

void RcTransport::check_paths(const StepLimit& limit) {
  for (const auto& queue : queues_) queue->send_probe(ready_);
  check_all_paths({.step = [this] { take_completions(); },
                   .proofs = [this] { return path_proofs(); },
                   .describe_status = [this](int32_t status) { return describe_status(status); },
                   .port = port_.text(),
                   .where = where()},
                  ready_, limit);
}

bool RcTransport::try_post(const WriteRequest& request) {
  const bool is_rank = static_cast<size_t>(request.peer.value) < peers_.size();
  memory_.cut(request, is_rank ? &peer_of(request.peer).arena : nullptr, caps_, port_.attr.max_msg_sz, pieces_);
  check_parts(request, pieces_.size(), options_.send_entries, "rc_send_entries", where_);
  Peer& peer = peer_of(request.peer);
  // With words behind their data there is one channel; else order does not matter.
  RcQueue* queue = peer.queues[peer.next_channel];
  if (!queue->try_add(request, pieces_)) return false;
  peer.next_channel = (peer.next_channel + 1) % peer.queues.size();
  if (std::find(chained_.begin(), chained_.end(), queue) == chained_.end()) chained_.push_back(queue);
  return true;
}

void RcTransport::flush() {
  for (RcQueue* queue : chained_) queue->flush(ready_);
  chained_.clear();
}

size_t RcTransport::post(std::span<const WriteRequest> requests) {
  if (!is_connected_) return 0;
  size_t taken = 0;
  try {
    while (taken < requests.size() && try_post(requests[taken])) ++taken;
  } catch (...) {
    flush();
    throw;
  }
  flush();
  return taken;
}

void RcTransport::take_completions() {
  std::array<abi::Wc, kRcPollBatch> completions;
  const int count = verbs_.poll_cq(cq_.get(), kRcPollBatch, completions.data());
  TILEWIRE_CHECK_GE(count, 0, ErrorKind::unavailable, "{}: the completion queue of {} cannot be polled", where(),
                    port_.name);
  for (const abi::Wc& wc : std::span(completions).first(static_cast<size_t>(count))) {
    RcQueue& queue = *queues_[RcQueue::number_of(wc.wr_id)];
    if (wc.wr_id & RcQueue::kReceiveBit) {
      queue.take_receive(wc, ready_);
    } else {
      queue.take_send(wc, ready_);
    }
  }
  // Once a queue is renewed, the others of the batch that are its own find nothing to do.
  for (const abi::Wc& wc : std::span(completions).first(static_cast<size_t>(count))) {
    queues_[RcQueue::number_of(wc.wr_id)]->renew_receives(ready_);
  }
}

size_t RcTransport::poll(std::span<Event> events) {
  if (!is_connected_) return 0;
  if (ready_.is_empty()) take_completions();
  return ready_.take(events);
}

std::string RcTransport::describe_status(int32_t status) const {
  const char* name = verbs_.status_text(static_cast<abi::WcStatus>(status));
  return fmt::format("{}{}; port {} is {}", name != nullptr ? name : "unknown status", meaning_of(status), port_.name,
                     port_.context ? port_.state_now(verbs_) : "closed");
}

// Queue pairs go before what they use; nothing here waits for a peer.
void RcTransport::close() noexcept {
  is_connected_ = false;
  for (Peer& peer : peers_) peer.queues.clear();
  queues_.clear();
  cq_.reset();
  memory_.reset();
  scratch_.reset();
  pd_.reset();
  port_.context.reset();
}

}  // namespace

std::unique_ptr<Transport> make_rc_transport(const TransportContext& context, const RcOptions& options,
                                             const verbs::Verbs& verbs) {
  return make_on_ports(verbs, rc_port_wish(options), context, [&](verbs::Port port) {
    return make_rc_port_transport(context, options, verbs, std::move(port));
  });
}

std::unique_ptr<Transport> make_rc_port_transport(const TransportContext& context, const RcOptions& options,
                                                  const verbs::Verbs& verbs, verbs::Port port) {
  return std::make_unique<RcTransport>(context, options, verbs, std::move(port));
}

}  // namespace tilewire

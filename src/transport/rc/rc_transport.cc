#include "transport/rc/rc_transport.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "transport/rc/address.h"
#include "transport/rc/checks.h"
#include "transport/rc/queue.h"
#include "transport/rc/rc_port.h"
#include "transport/registered_ranges.h"
#include "transport/verbs/memory.h"
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
  RcTransport(const TransportContext& context, const RcOptions& options, const Verbs& verbs);
  ~RcTransport() override { close(); }

  const Caps& caps() const override { return caps_; }
  void register_arena(uint64_t begin, uint64_t bytes) override;
  std::vector<std::byte> address() override;
  void connect(std::span<const std::vector<std::byte>> addresses, std::chrono::nanoseconds deadline) override;
  void check_paths(std::chrono::nanoseconds deadline) override;
  std::vector<std::byte> new_keys() override;
  void learn_keys(std::span<const std::vector<std::byte>> by_rank) override;
  size_t post(std::span<const WriteRequest> requests) override;
  size_t poll(std::span<Event> events) override;
  std::string describe_status(int32_t status) const override;
  void close() noexcept override;

 private:
  struct Peer {
    bool is_peer = false;
    uint64_t arena = 0;  // its address there
    verbs::KeyTable keys;
    std::vector<RcQueue*> queues{};  // by channel
    size_t next_channel = 0;
  };

  void make_queues();
  void connect_peer(Rank rank, const RcAddress& address);
  void learn(Peer& peer, const std::vector<verbs::MemoryKey>& keys);
  bool try_post(const WriteRequest& request);
  void cut(const WriteRequest& request, const Peer& peer);
  void flush();
  void take_completions();
  void fail_unproved(const std::vector<size_t>& arrived) const;
  std::string where() const { return fmt::format("rc transport of rank {}", context_.rank.value); }

  TransportContext context_;
  RcOptions options_;
  const Verbs& verbs_;
  verbs::Port port_;
  Caps caps_;
  Pd pd_;
  Cq cq_;
  verbs::ScratchMemory scratch_;
  RegisteredRanges ranges_;
  verbs::KeyTable own_keys_;
  std::mutex keys_mutex_;                      // guards the two below
  std::vector<Mr> memory_;                     // of the arena
  std::vector<verbs::MemoryKey> remote_keys_;  // of the arena, not told yet
  std::vector<std::unique_ptr<RcQueue>> queues_;
  std::vector<Peer> peers_;  // by rank
  std::vector<RcPiece> pieces_;
  std::vector<RcQueue*> chained_;
  std::vector<Event> ready_;  // not given out yet: those from ready_head_ on
  size_t ready_head_ = 0;
  bool is_connected_ = false;
};

RcTransport::RcTransport(const TransportContext& context, const RcOptions& options, const Verbs& verbs)
    : context_(context),
      options_(options),
      verbs_(verbs),
      port_(open_port(verbs, rc_port_wish(options), context.local)),
      caps_(caps_of(options, port_, context.peers.size() * static_cast<size_t>(options.channels))),
      pd_(verbs, verbs.alloc_pd(port_.context.get())),
      peers_(static_cast<size_t>(context.ranks)) {
  TILEWIRE_CHECK(pd_, ErrorKind::resource, "{}: no protection domain on {}", where(), port_.name);
  if (!port_.gid.warning.empty()) log_once("rc gid " + port_.name, "{}: {}", port_.name, port_.gid.warning);
  check_device_limits(port_, options_, context.peers.size(), where());
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
    Peer& peer = peers_[static_cast<size_t>(rank.value)];
    peer.is_peer = true;
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
  if (bytes == 0) return;
  const bool is_relaxed = options_.relaxed_ordering && begin >= context_.strict_bytes;
  Mr memory = register_memory(verbs_, pd_.get(), context_.arena + begin, bytes, is_relaxed, where());
  ranges_.add(begin, bytes, context_.arena_bytes);
  const std::lock_guard lock(keys_mutex_);
  own_keys_.add({begin, begin + bytes, memory->lkey});
  remote_keys_.push_back({begin, begin + bytes, memory->rkey});
  memory_.push_back(std::move(memory));
}

std::vector<std::byte> RcTransport::address() {
  RcAddress address{.signal = options_.signal,
                    .channels = options_.channels,
                    .link_layer = port_.attr.link_layer,
                    .mtu = port_.attr.active_mtu,
                    .lid = port_.attr.lid,
                    .gid = port_.gid.gid,
                    .port = port_.name,
                    .arena = reinterpret_cast<uint64_t>(context_.arena),
                    .scratch_key = scratch_.rkey(),
                    .receive_entries = options_.receive_entries};
  for (const auto& queue : queues_) address.queues.push_back(queue->end());
  const std::lock_guard lock(keys_mutex_);
  address.keys = std::exchange(remote_keys_, {});
  return address.pack();
}

std::vector<std::byte> RcTransport::new_keys() {
  const std::lock_guard lock(keys_mutex_);
  return pack_keys(std::exchange(remote_keys_, {}));
}

void RcTransport::learn(Peer& peer, const std::vector<verbs::MemoryKey>& keys) {
  for (const verbs::MemoryKey& key : keys) peer.keys.add(key);
}

void RcTransport::learn_keys(std::span<const std::vector<std::byte>> by_rank) {
  TILEWIRE_CHECK_EQ(by_rank.size(), peers_.size(), ErrorKind::invalid_argument, "keys of every rank");
  for (size_t r = 0; r < peers_.size(); ++r) {
    if (peers_[r].is_peer) learn(peers_[r], unpack_keys(by_rank[r]));
  }
}

void RcTransport::connect_peer(Rank rank, const RcAddress& address) {
  check_agreement(port_, options_, rank, address, where());
  Peer& peer = peers_[static_cast<size_t>(rank.value)];
  peer.arena = address.arena;
  learn(peer, address.keys);
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

void RcTransport::check_paths(std::chrono::nanoseconds deadline) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  for (const auto& queue : queues_) queue->send_probe(ready_);
  std::vector<size_t> arrived(peers_.size(), 0);
  const auto is_proved = [&](Rank rank) {
    const Peer& peer = peers_[static_cast<size_t>(rank.value)];
    return arrived[static_cast<size_t>(rank.value)] == peer.queues.size() &&
           std::all_of(peer.queues.begin(), peer.queues.end(),
                       [](const RcQueue* queue) { return queue->has_probe() && queue->is_idle(); });
  };
  while (!std::all_of(context_.peers.begin(), context_.peers.end(), is_proved)) {
    take_completions();
    for (const Event& event : ready_) {
      if (event.kind == EventKind::arrived) ++arrived[static_cast<size_t>(event.peer.value)];
      if (event.kind != EventKind::failed) continue;
      throw Error(ErrorKind::unavailable,
                  {.what = fmt::format("the first write to rank {} failed", event.peer.value),
                   .where = where(),
                   .values = fmt::format("port {}, {}", port_.text(), describe_status(event.status)),
                   .advice = "check that the hosts reach each other over these ports (ping, rping), and their MTU"});
    }
    ready_.clear();
    if (std::chrono::steady_clock::now() > end) fail_unproved(arrived);
    std::this_thread::yield();
  }
}

void RcTransport::fail_unproved(const std::vector<size_t>& arrived) const {
  std::string text;
  for (const Rank rank : context_.peers) {
    const Peer& peer = peers_[static_cast<size_t>(rank.value)];
    const bool is_acknowledged =
        std::all_of(peer.queues.begin(), peer.queues.end(), [](const RcQueue* queue) { return queue->is_idle(); });
    const size_t here = arrived[static_cast<size_t>(rank.value)];
    if (is_acknowledged && here == peer.queues.size()) continue;
    text += fmt::format("{}rank {}: {} of {} probes came, own ones {}", text.empty() ? "" : "; ", rank.value, here,
                        peer.queues.size(), is_acknowledged ? "acknowledged" : "not acknowledged");
  }
  throw Error(ErrorKind::deadline, {.what = "paths to other ranks carry nothing",
                                    .where = where(),
                                    .values = text.empty() ? "probes came with wrong content" : text,
                                    .limit = fmt::format("port {}", port_.text()),
                                    .advice = "check that the hosts reach each other over these ports, and their MTU"});
}

// Parts of a request that need one key on either side, into pieces_; for a value and an immediate alone one at most.
void RcTransport::cut(const WriteRequest& request, const Peer& peer) {
  pieces_.clear();
  const auto fail = [&](const char* what) {
    throw Error(ErrorKind::invalid_argument,
                {.what = what,
                 .where = where(),
                 .values = fmt::format("request {} to rank {}: dst_offset = {}, bytes = {}", request.id,
                                       request.peer.value, request.dst_offset, request.bytes)});
  };
  const bool is_value = request.kind == RequestKind::write_value;
  uint64_t left = is_value ? sizeof(request.value) : request.bytes;
  for (uint64_t at = 0; left > 0;) {
    const verbs::MemoryKey* dst = peer.keys.find(request.dst_offset + at);
    if (dst == nullptr) fail("the peer has registered no memory there");
    RcPiece piece{.dst = peer.arena + request.dst_offset + at, .dst_key = dst->key};
    piece.bytes = std::min({left, dst->end - (request.dst_offset + at), uint64_t{port_.attr.max_msg_sz}});
    if (!is_value) {
      const verbs::MemoryKey* src = own_keys_.find(request.src_offset + at);
      piece.src = reinterpret_cast<uint64_t>(context_.arena) + request.src_offset + at;
      piece.src_key = src->key;
      piece.bytes = std::min(piece.bytes, src->end - (request.src_offset + at));
    }
    pieces_.push_back(piece);
    at += piece.bytes;
    left -= piece.bytes;
  }
}

bool RcTransport::try_post(const WriteRequest& request) {
  const auto rank = static_cast<size_t>(request.peer.value);
  if (rank >= peers_.size() || !peers_[rank].is_peer) {
    throw Error(ErrorKind::invalid_argument, {.what = "a request is for a rank that is no peer",
                                              .where = where(),
                                              .values = fmt::format("peer = {}", request.peer.value)});
  }
  check_request(request, caps_, ranges_, where());
  Peer& peer = peers_[rank];
  cut(request, peer);
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
  if (ready_head_ == ready_.size()) {
    ready_.clear();
    ready_head_ = 0;
    take_completions();
  }
  const size_t count = std::min(events.size(), ready_.size() - ready_head_);
  std::copy_n(ready_.begin() + static_cast<ptrdiff_t>(ready_head_), count, events.begin());
  ready_head_ += count;
  return count;
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
  memory_.clear();
  scratch_.reset();
  pd_.reset();
  port_.context.reset();
}

}  // namespace

std::unique_ptr<Transport> make_rc_transport(const TransportContext& context, const RcOptions& options,
                                             const verbs::Verbs& verbs) {
  return std::make_unique<RcTransport>(context, options, verbs);
}

}  // namespace tilewire

#include "transport/srd/srd_transport.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>

#include "base/check.h"
#include "base/log.h"
#include "transport/srd/peers.h"
#include "transport/srd/probes.h"
#include "transport/verbs/arena_memory.h"
#include "transport/verbs/device_watch.h"
#include "transport/verbs/path_check.h"

namespace tilewire {
namespace {

using namespace verbs;

constexpr uint32_t kSrdMostOutstanding = 8192;
// Requests that go to one queue pair before the next one gets its turn.
constexpr size_t kSrdRun = 16;
// Credits keep a sender from a receiver that is not ready: if it happens all the same it is an error, not a wait for ever.
constexpr uint8_t kSrdRnrRetries = 6;

std::string where_of(Rank rank) { return fmt::format("srd transport of rank {}", rank.value); }

uint32_t random_qkey() { return std::random_device{}() & 0x7fffffffu; }

class SrdTransport final : public Transport {
 public:
  SrdTransport(const TransportContext& context, const SrdOptions& options, const SrdLibraries& libraries, SrdPort port);
  ~SrdTransport() override { close(); }

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
  SrdQueue::Setup setup_of(uint32_t send_entries, uint32_t receive_entries) const;
  size_t post_run(std::span<const WriteRequest> requests, size_t channel);
  bool try_add(const WriteRequest& request, size_t channel);
  void take_completions();
  void take_arrival(size_t channel, const SrdArrived& arrived);
  void take_report(const SrdArrived& arrived);
  void send_reports();
  [[noreturn]] void fail_source(const SrdArrived& arrived) const;

  TransportContext context_;
  const std::string where_;
  SrdLibraries libraries_;
  SrdPort port_;
  DeviceWatch watch_;
  SrdNeeds needs_;
  Caps caps_;
  uint32_t qkey_ = random_qkey();
  Pd pd_;
  SrdProbes probes_;
  ArenaMemory memory_;
  SrdPeers peers_;                               // its address handles go after the queue pairs that use them
  std::vector<std::unique_ptr<SrdLane>> lanes_;  // by channel
  std::unique_ptr<SrdLane> report_lane_;
  size_t next_channel_ = 0;
  std::vector<Piece> pieces_;
  std::vector<SrdSource> to_report_;  // channels of peers that have not heard for a while
  EventList ready_;
  bool is_connected_ = false;
};

SrdTransport::SrdTransport(const TransportContext& context, const SrdOptions& options, const SrdLibraries& libraries,
                           SrdPort port)
    : context_(context),
      where_(where_of(context.rank)),
      libraries_(libraries),
      port_(std::move(port)),
      watch_(*libraries_.verbs, port_.port),
      needs_(srd_needs(port_, options, context, where_)),
      caps_{.name = "srd",
            .write_with_immediate = true,
            .max_outstanding = std::min(kSrdMostOutstanding, (needs_.queues - 1) * needs_.send_entries),
            .max_write_bytes = port_.efa.max_rdma_size},
      pd_(*libraries.verbs, libraries.verbs->alloc_pd(port_.port.context.get())),
      memory_(*libraries_.verbs, pd_.get(), context_, where_),
      peers_(static_cast<size_t>(context.ranks), context.peers) {
  TILEWIRE_CHECK(pd_, ErrorKind::resource, "{}: no protection domain on {}", where_, port_.port.name);
  probes_ = SrdProbes(*libraries_.verbs, pd_.get(), peers_.ranks(), needs_.queues - 1, where_);
  for (uint32_t channel = 0; channel + 1 < needs_.queues; ++channel) {
    lanes_.push_back(std::make_unique<SrdLane>(setup_of(needs_.send_entries, needs_.receive_entries)));
  }
  report_lane_ = std::make_unique<SrdLane>(setup_of(needs_.report_send_entries, needs_.report_receive_entries));
  ready_.reserve(4096);
  log_info("srd: {}; {} queue pairs, {} immediates of each of {} peers, {}", port_.port.text(), needs_.queues,
           needs_.credits, context_.peers.size(), needs_.is_unsolicited ? "unsolicited" : "with receives");
}

SrdQueue::Setup SrdTransport::setup_of(uint32_t send_entries, uint32_t receive_entries) const {
  return {.libraries = libraries_,
          .port = &port_,
          .pd = pd_.get(),
          .qkey = qkey_,
          .send_entries = send_entries,
          .receive_entries = receive_entries,
          .is_unsolicited = needs_.is_unsolicited,
          .rnr_retries = kSrdRnrRetries,
          .received = {.addr = probes_.address(), .length = 0, .lkey = probes_.lkey()},
          .where = where_};
}

void SrdTransport::register_arena(uint64_t begin, uint64_t bytes) { memory_.add(begin, bytes, /*is_relaxed=*/false); }

void SrdTransport::unregister_arena(uint64_t begin, uint64_t bytes) { memory_.remove(begin, bytes); }

std::vector<std::byte> SrdTransport::address() {
  SrdAddress address{.is_unsolicited = needs_.is_unsolicited,
                     .gid = port_.port.gid.gid,
                     .port = port_.port.name,
                     .qkey = qkey_,
                     .arena = reinterpret_cast<uint64_t>(context_.arena),
                     .scratch = probes_.address(),
                     .scratch_key = probes_.rkey(),
                     .credits = needs_.credits,
                     .report_queue = report_lane_->number()};
  for (const auto& lane : lanes_) address.queues.push_back(lane->number());
  address.keys = memory_.untold_keys();
  return address.pack();
}

std::vector<std::byte> SrdTransport::new_keys() { return pack_keys(memory_.untold_keys()); }

void SrdTransport::learn_keys(std::span<const std::vector<std::byte>> by_rank) {
  learn_keys_of_peers(by_rank, context_, [this](Rank rank) -> PeerArena& { return peers_.at(rank).arena; });
}

void SrdTransport::connect(std::span<const std::vector<std::byte>> addresses, std::chrono::nanoseconds /*deadline*/) {
  TILEWIRE_CHECK_EQ(addresses.size(), peers_.ranks(), ErrorKind::invalid_argument, "one address a rank");
  const SrdPeers::Own own{.libraries = libraries_,
                          .port = &port_,
                          .pd = pd_.get(),
                          .scratch = probes_.address(),
                          .scratch_key = probes_.lkey(),
                          .credits = needs_.credits,
                          .is_unsolicited = needs_.is_unsolicited,
                          .channels = lanes_.size(),
                          .where = where_};
  for (const Rank rank : context_.peers) {
    peers_.connect(own, rank, SrdAddress::unpack(rank, addresses[static_cast<size_t>(rank.value)]));
  }
  to_report_.reserve(context_.peers.size() * lanes_.size());
  is_connected_ = true;
}

void SrdTransport::check_paths(const StepLimit& limit) {
  std::deque<std::pair<Rank, size_t>> to_send;
  for (const Rank rank : context_.peers) {
    for (size_t channel = 0; channel < lanes_.size(); ++channel) to_send.emplace_back(rank, channel);
  }
  const auto step = [&] {
    for (size_t left = to_send.size(); left > 0; --left) {
      const auto [rank, channel] = to_send.front();
      SrdPath& path = peers_.at(rank).paths[channel];
      const Piece probe = probes_.fill(rank, channel, context_.rank, lanes_[channel]->number(), path);
      if (!lanes_[channel]->try_add_own(SrdFlightKind::probe, path, probe, 0) || !lanes_[channel]->post(ready_)) break;
      to_send.pop_front();
    }
    take_completions();
  };
  const auto is_acknowledged = [&](Rank rank) {
    const auto is_to_send = [&](const auto& probe) { return probe.first == rank; };
    return std::none_of(to_send.begin(), to_send.end(), is_to_send) &&
           std::none_of(lanes_.begin(), lanes_.end(),
                        [&](const auto& lane) { return lane->has_probe_under_way(rank); });
  };
  const auto proofs = [&] {
    std::vector<PathProof> all;
    for (const Rank rank : context_.peers) {
      all.push_back({.peer = rank,
                     .paths = lanes_.size(),
                     .is_acknowledged = is_acknowledged(rank),
                     .is_content_right = probes_.are_right(rank)});
    }
    return all;
  };
  probes_.expect(true);
  check_all_paths({.step = step,
                   .proofs = proofs,
                   .describe_status = [this](int32_t status) { return describe_status(status); },
                   .port = port_.port.text(),
                   .where = where_},
                  ready_, limit);
  probes_.expect(false);
}

bool SrdTransport::try_add(const WriteRequest& request, size_t channel) {
  SrdPeer* peer = peers_.find(request.peer);
  memory_.cut(request, peer != nullptr ? &peer->arena : nullptr, caps_, port_.efa.max_rdma_size, pieces_);
  check_parts(request, pieces_.size(), needs_.send_entries, "srd_send_entries", where_);
  return lanes_[channel]->try_add(request, pieces_, peer->paths[channel]);
}

// A run of requests on one queue pair; how many were taken.
size_t SrdTransport::post_run(std::span<const WriteRequest> requests, size_t channel) {
  const std::span run = lanes_.size() > 1 ? requests.first(std::min(kSrdRun, requests.size())) : requests;
  size_t added = 0;
  try {
    while (added < run.size() && try_add(run[added], channel)) ++added;
  } catch (...) {
    lanes_[channel]->post(ready_);
    throw;
  }
  return lanes_[channel]->post(ready_) ? added : 0;
}

size_t SrdTransport::post(std::span<const WriteRequest> requests) {
  if (!is_connected_) return 0;
  size_t taken = 0;
  size_t refused = 0;  // channels in a row
  while (taken < requests.size() && refused < lanes_.size()) {
    const size_t run = post_run(requests.subspan(taken), next_channel_);
    taken += run;
    refused = run > 0 ? 0 : refused + 1;
    next_channel_ = (next_channel_ + 1) % lanes_.size();
  }
  return taken;
}

void SrdTransport::take_completions() {
  for (size_t channel = 0; channel < lanes_.size(); ++channel) {
    lanes_[channel]->take_sent(ready_);
    lanes_[channel]->take_arrived([&](const SrdArrived& arrived) { take_arrival(channel, arrived); });
  }
  report_lane_->take_sent(ready_);
  report_lane_->take_arrived([&](const SrdArrived& arrived) { take_report(arrived); });
  if (!to_report_.empty()) send_reports();
  if (!ready_.is_empty()) return;  // what a request says comes first
  for (const auto& lane : lanes_) lane->check_receives();
  report_lane_->check_receives();
}

void SrdTransport::take_arrival(size_t channel, const SrdArrived& arrived) {
  const SrdSource* source = peers_.find_source(arrived.source);
  if (source == nullptr || source->channel != channel) fail_source(arrived);
  TakenCount& taken = peers_.at(source->rank).taken[channel];
  taken.add();
  if (taken.has_just_to_be_told()) to_report_.push_back(*source);
  if (probes_.are_expected()) {
    probes_.take(source->rank, channel, peers_.at(source->rank).paths[channel].target.queue, lanes_[channel]->number());
  }
  ready_.add({.kind = EventKind::arrived, .peer = source->rank, .immediate = arrived.immediate});
}

void SrdTransport::take_report(const SrdArrived& arrived) {
  const SrdSource* source = peers_.find_source(arrived.source);
  const SrdReport report = SrdReport::unpack(arrived.immediate);
  if (source == nullptr || source->channel != SrdSource::kReports || report.channel >= lanes_.size()) {
    fail_source(arrived);
  }
  peers_.at(source->rank).paths[report.channel].credits.add_taken(report.taken);
}

// What finds no room stays for the next time, and is told together with what has come by then.
void SrdTransport::send_reports() {
  while (!to_report_.empty() && report_lane_->has_room()) {
    const SrdSource source = to_report_.back();
    SrdPeer& peer = peers_.at(source.rank);
    TakenCount& taken = peer.taken[source.channel];
    const SrdReport report{source.channel, static_cast<uint32_t>(taken.untold())};
    if (!report_lane_->try_add_own(SrdFlightKind::report, peer.report_path, peer.report_path.nothing, report.pack()) ||
        !report_lane_->post(ready_)) {
      return;
    }
    taken.tell();
    to_report_.pop_back();
  }
}

void SrdTransport::fail_source(const SrdArrived& arrived) const {
  throw Error(ErrorKind::internal,
              {.what = "an immediate came from a queue pair of no peer",
               .where = where_,
               .values = fmt::format("address handle {}, queue pair {}, immediate {:#x}", arrived.source >> 32,
                                     arrived.source & UINT32_MAX, arrived.immediate)});
}

size_t SrdTransport::poll(std::span<Event> events) {
  if (!is_connected_) return 0;
  if (ready_.is_empty()) take_completions();
  return ready_.take(events);
}

std::string SrdTransport::describe_status(int32_t status) const {
  return fmt::format("{}; port {} is {}", srd_status_text(*libraries_.verbs, status), port_.port.name,
                     port_.port.context ? port_.port.state_now(*libraries_.verbs) : "closed");
}

// Queue pairs go before what they use; nothing here waits for a peer.
void SrdTransport::close() noexcept {
  is_connected_ = false;
  lanes_.clear();
  report_lane_.reset();
  peers_.forget_handles();
  memory_.reset();
  probes_.reset();
  pd_.reset();
  port_.port.context.reset();
}

}  // namespace

std::unique_ptr<Transport> make_srd_port_transport(const TransportContext& context, const SrdOptions& options,
                                                   const SrdLibraries& libraries, Port port) {
  return std::make_unique<SrdTransport>(context, options, libraries, srd_port_of(libraries, std::move(port)));
}

std::unique_ptr<Transport> make_srd_transport(const TransportContext& context, const SrdOptions& options,
                                              const SrdLibraries& libraries) {
  return make_on_ports(*libraries.verbs, srd_port_wish(libraries, options), context, [&](Port port) {
    return make_srd_port_transport(context, options, libraries, std::move(port));
  });
}

}  // namespace tilewire

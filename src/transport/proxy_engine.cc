#include "transport/proxy_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"
#include "memory/nic_access.h"
#include "memory/words.h"

namespace tilewire {
namespace {

constexpr size_t kCommandBatch = 32;  // from one ring before the next gets its turn
constexpr size_t kEventBatch = 64;
constexpr int kEventRounds = 4;
constexpr size_t kOfferBehindRefusal = 8;  // requests: peers are then asked one after the other, mostly in vain

uint64_t bytes_of(const Command& c) { return uint64_t{c.units} * kWireUnitBytes; }

}  // namespace

const char* to_string(ProxyFaultKind kind) {
  switch (kind) {
    case ProxyFaultKind::bad_command: return "bad command";
    case ProxyFaultKind::failed_request: return "failed request";
    case ProxyFaultKind::failed_device: return "failed device";
    case ProxyFaultKind::bad_event: return "bad event";
    case ProxyFaultKind::died: return "died";
  }
  return "unknown";
}

ProxyEngine::ProxyEngine(const ProxyConfig& config, Transport& transport, const CommittedBytes& committed,
                         ProxyCounters& counters)
    : rank_(config.rank),
      layout_(config.layout),
      control_page_(config.control_page),
      transport_(transport),
      counters_(counters),
      sink_(config.arrivals),
      flushed_memory_(config.gpu_memory != nullptr && config.gpu_memory->needs_flush() ? config.gpu_memory : nullptr),
      arrival_(choose_arrival(transport.caps())),
      check_(config.layout, config.peers, transport.caps().max_write_bytes, committed),
      peer_positions_(peer_positions(config.peers, config.layout.flags.ranks)),
      calls_(config.rings.size(), config.first_epoch),
      table_(transport.caps().max_outstanding),
      slots_per_command_(arrival_.strategy == ArrivalStrategy::ordered ? 2 : 1),
      pending_(config.peers.size(), table_.slot_count()),
      last_of_word_(table_.slot_count()),
      said_done_(config.peers.size(), 0),
      arrived_done_(config.peers.size(), 0),
      words_(config.words),
      has_left_(config.has_left),
      leaving_time_(config.leaving_time),
      hearing_time_(config.hearing_time) {
  TILEWIRE_CHECK(control_page_ != nullptr, ErrorKind::invalid_argument, "a proxy needs the control page of rank {}",
                 rank_.value);
  TILEWIRE_CHECK(sink_ != nullptr || arrival_.strategy != ArrivalStrategy::counted, ErrorKind::invalid_argument,
                 "{}: the proxy needs an arrival sink", arrival_.reason);
  for (const RingMemory& memory : config.rings) rings_.push_back({CommandConsumer(memory)});
  publish_sent(control_page_, calls_.sent());  // nothing of earlier calls is on its way
}

bool ProxyEngine::step() {
  bool moved = take_commands();
  moved |= post_pending();
  moved |= take_events();
  if (!held_arrivals_.empty()) moved |= retry_arrivals();
  if (!doubts_.empty()) moved |= judge_doubts();
  if (moved && calls_.advance()) publish_sent(control_page_, calls_.sent());
  return moved;
}

bool ProxyEngine::take_commands() {
  bool moved = false;
  const size_t first = next_ring_;
  for (size_t i = 0; i < rings_.size(); ++i) {
    size_t ring = first + i;
    if (ring >= rings_.size()) ring -= rings_.size();
    if (table_.free_count() < slots_per_command_) {
      if (!is_credit_stalled_) counters_.credit_stalls.add(1);
      is_credit_stalled_ = true;
      next_ring_ = ring;
      return moved;
    }
    moved |= take_from(ring);
  }
  is_credit_stalled_ = false;
  return moved;
}

bool ProxyEngine::take_from(size_t ring) {
  CommandConsumer& consumer = rings_[ring].consumer;
  PackedCommand packed;
  size_t taken = 0;
  while (taken < kCommandBatch && table_.free_count() >= slots_per_command_ && consumer.try_take(packed)) {
    accept(ring, unpack(packed));
    ++taken;
  }
  if (taken == 0) return false;
  consumer.release();
  counters_.commands.add(taken);
  return true;
}

void ProxyEngine::accept(size_t ring, const Command& command) {
  const Epoch epoch = calls_.epoch(ring);
  const CommandField bad = check_.bad_field(command, epoch);
  if (bad != CommandField::none) [[unlikely]]
    fail_command(ring, command, bad);
  if (command.kind == CommandKind::call_end) return calls_.end_call(ring);
  peer_counters(command.peer).commands.add(1);
  if (command.kind == CommandKind::write) return enqueue_write(command, epoch);
  enqueue_signal(command, epoch);
}

void ProxyEngine::enqueue_write(const Command& command, Epoch epoch) {
  const int64_t half = layout_.half_offset(epoch);
  WriteRequest data{.kind = RequestKind::write,
                    .peer = command.peer,
                    .src_offset = static_cast<uint64_t>(command.from_user ? layout_.user_offset() : half) +
                                  command.src_unit * kWireUnitBytes,
                    .dst_offset = static_cast<uint64_t>(half) + command.dst_unit * kWireUnitBytes,
                    .bytes = bytes_of(command)};
  switch (arrival_.strategy) {
    case ArrivalStrategy::ordered:
      enqueue(data, epoch, command.word);
      return enqueue(flag_request(command.peer, command.word, epoch), epoch, command.word);
    case ArrivalStrategy::counted:
      data.kind = RequestKind::write_with_immediate;
      data.immediate = pack(Immediate{command.word, epoch});
      return enqueue(data, epoch, command.word);
    case ArrivalStrategy::after_completion: return enqueue_in_word_order(data, epoch, command.word);
  }
}

void ProxyEngine::enqueue_signal(const Command& command, Epoch epoch) {
  if (command.word == layout_.flags.done(rank_)) said_done_[position_of(command.peer)] = epoch;
  const WriteRequest flag = flag_request(command.peer, command.word, epoch);
  if (arrival_.strategy == ArrivalStrategy::after_completion) return enqueue_in_word_order(flag, epoch, command.word);
  enqueue(flag, epoch, command.word);
}

WriteRequest ProxyEngine::flag_request(Rank peer, uint32_t word, Epoch epoch) const {
  if (arrival_.strategy == ArrivalStrategy::counted) {
    return {.kind = RequestKind::write_with_immediate, .peer = peer, .immediate = pack(Immediate{word, epoch})};
  }
  return {.kind = RequestKind::write_value,
          .peer = peer,
          .dst_offset = static_cast<uint64_t>(layout_.word_offset(word)),
          .value = epoch};
}

void ProxyEngine::enqueue(const WriteRequest& request, Epoch epoch, uint32_t word) {
  const uint32_t slot = table_.add(request, epoch, word);
  calls_.open(epoch);
  wait_to_post(slot);
}

void ProxyEngine::wait_to_post(uint32_t slot) { pending_.add(position_of(table_.at(slot).request.peer), slot); }

void ProxyEngine::enqueue_in_word_order(const WriteRequest& request, Epoch epoch, uint32_t word) {
  const uint32_t slot = table_.add(request, epoch, word);
  table_.at(slot).flag_follows = request.kind != RequestKind::write_value;
  calls_.open(epoch);
  const std::optional<uint32_t> before = last_of_word_.put(request.peer, word, slot);
  if (!before) return wait_to_post(slot);
  table_.at(*before).next_of_word = slot + 1;
}

bool ProxyEngine::post_pending() {
  if (pending_.is_empty()) return false;
  bool moved = false, refused = false;
  pending_.begin_round();
  while (const size_t count =
             pending_.next(std::span(batch_slots_).first(refused ? kOfferBehindRefusal : batch_slots_.size()))) {
    for (size_t i = 0; i < count; ++i) batch_[i] = table_.at(batch_slots_[i]).request;
    const std::span<const WriteRequest> offered = std::span(batch_).first(count);
    const size_t posted = transport_.post(offered);
    TILEWIRE_CHECK_LE(posted, count, ErrorKind::internal, "{} took more than it was offered", transport_.caps().name);
    for (const WriteRequest& request : offered.first(posted)) count_posted(request);
    pending_.posted(posted);
    moved |= posted > 0;
    if (posted == count) continue;
    pending_.refuse();
    refused = true;
  }
  if (refused && !is_post_refused_) counters_.post_refusals.add(1);
  is_post_refused_ = refused;
  return moved;
}

void ProxyEngine::count_posted(const WriteRequest& request) {
  PeerCounters& peer = peer_counters(request.peer);
  peer.requests.add(1);
  peer.data_bytes.add(request.bytes);
}

bool ProxyEngine::take_events() {
  std::array<Event, kEventBatch> events;
  bool moved = false;
  for (int round = 0; round < kEventRounds; ++round) {
    const size_t n = transport_.poll(events);
    const auto has_arrived = [](const Event& event) { return event.kind == EventKind::arrived; };
    if (flushed_memory_ != nullptr && std::any_of(events.begin(), events.begin() + n, has_arrived)) {
      flushed_memory_->flush();
    }
    for (const Event& event : std::span(events).first(n)) take_event(event);
    moved |= n > 0;
    if (n < events.size()) break;
  }
  return moved;
}

void ProxyEngine::take_event(const Event& event) {
  switch (event.kind) {
    case EventKind::completed: return complete(event);
    case EventKind::failed: return miss(event);
    case EventKind::own_failed: return doubt(event, std::nullopt);
    case EventKind::arrived: return arrive(event);
  }
}

void ProxyEngine::complete(const Event& event) {
  const std::optional<uint32_t> index = table_.take_completion(event.id);
  if (!index) fail_event(event, "a completion came for a request that is not in flight", "exactly one a request");
  counters_.completions.add(1);
  RequestSlot& slot = table_.at(*index);
  if (!slot.flag_follows) return finish(*index);
  slot.flag_follows = false;
  table_.set_next(*index, flag_request(slot.request.peer, slot.word, slot.epoch));
  wait_to_post(*index);
}

void ProxyEngine::finish(uint32_t index) {
  const RequestSlot& slot = table_.at(index);
  calls_.close(slot.epoch);
  if (slot.next_of_word != 0) {
    wait_to_post(slot.next_of_word - 1);
  } else if (arrival_.strategy == ArrivalStrategy::after_completion) {
    last_of_word_.erase(slot.request.peer, slot.word);
  }
  table_.release(index);
}

void ProxyEngine::arrive(const Event& event) {
  // The narrow epoch is completed from the newest one this side knows: a peer is at most one call ahead of that.
  const Epoch near = std::max(calls_.newest(), newest_arrival_);
  const Immediate immediate = unpack_immediate(event.immediate, near);
  const auto peer = static_cast<size_t>(event.peer.value);
  if (peer >= peer_positions_.size() || peer_positions_[peer] < 0) {
    fail_event(event, "an arrival came from a rank that is no peer", "");
  }
  if (sink_ == nullptr) fail_event(event, "an arrival came, and nobody takes arrivals here", "");
  if (immediate.word >= layout_.flags.words()) {
    fail_event(event, "an arrival came for a word that does not exist", fmt::format("{} words", layout_.flags.words()));
  }
  newest_arrival_ = std::max(newest_arrival_, immediate.epoch);
  peer_counters(event.peer).arrivals.add(1);
  if (immediate.word == layout_.flags.done(event.peer)) arrived_done_[position_of(event.peer)] = immediate.epoch;
  const Arrival arrival{immediate.word, immediate.epoch};
  if (held_arrivals_.empty() && sink_->deliver(arrival)) return;
  if (held_arrivals_.empty()) counters_.sink_refusals.add(1);
  held_arrivals_.push_back(arrival);
}

bool ProxyEngine::retry_arrivals() {
  bool moved = false;
  while (!held_arrivals_.empty() && sink_->deliver(held_arrivals_.front())) {
    held_arrivals_.pop_front();
    moved = true;
  }
  return moved;
}

// Who has not been told that this rank is done with the call waits for it, and is there.
void ProxyEngine::miss(const Event& event) {
  const std::optional<uint32_t> slot = table_.take_completion(event.id);
  if (!slot) fail_request(event);
  const RequestSlot& request = table_.at(*slot);
  const bool is_its = request.request.peer == event.peer;  // a queue that fails without a request says so with none
  if (!is_its || said_done_[position_of(event.peer)] < request.epoch) fail_request(event);
  doubt(event, slot);
}

// Its peer may have left, and the word of it still be on its way; or be dead, which the control connection finds out.
void ProxyEngine::doubt(const Event& event, std::optional<uint32_t> slot) {
  doubts_.push_back({event, slot, std::chrono::steady_clock::now()});
  judge_doubts();
}

Epoch ProxyEngine::heard_done(Rank peer) const {
  const Epoch arrived = arrived_done_[position_of(peer)];
  if (words_ != nullptr) return std::max(arrived, load_word(words_, layout_, layout_.flags.done(peer)));
  // Where nobody can tell it may have.
  return arrival_.strategy == ArrivalStrategy::counted ? arrived : std::numeric_limits<Epoch>::max();
}

// Who leaves has said before that it is done with all calls, so one that has not is there.
std::chrono::nanoseconds ProxyEngine::time_of(const Doubt& doubt) {
  const bool is_in_call = doubt.slot && heard_done(doubt.event.peer) < table_.at(*doubt.slot).epoch;
  return is_in_call ? hearing_time_ : leaving_time_;
}

bool ProxyEngine::judge_doubts() {
  const size_t settled = std::erase_if(doubts_, [this](const Doubt& doubt) {
    if (!has_left_ || !has_left_(doubt.event.peer)) return false;
    if (doubt.slot) finish(*doubt.slot);
    return true;
  });
  const auto now = std::chrono::steady_clock::now();
  for (const Doubt& doubt : doubts_) {
    if (now - doubt.since >= time_of(doubt)) fail_request(doubt.event);
  }
  return settled > 0;
}

bool ProxyEngine::discard() noexcept {
  bool moved = false;
  PackedCommand packed;
  for (Ring& ring : rings_) {
    while (ring.consumer.try_take(packed)) moved = true;
    ring.consumer.release();
  }
  return moved;
}

size_t ProxyEngine::position_of(Rank peer) const {
  return static_cast<size_t>(peer_positions_[static_cast<size_t>(peer.value)]);
}

PeerCounters& ProxyEngine::peer_counters(Rank peer) { return counters_.peers[position_of(peer)]; }

std::string ProxyEngine::where() const { return fmt::format("proxy of rank {}", rank_.value); }

void ProxyEngine::fail_command(size_t ring, const Command& command, CommandField field) const {
  const Epoch epoch = calls_.epoch(ring);
  const bool has_peer = command.kind == CommandKind::write || command.kind == CommandKind::signal;
  throw ProxyFaultError(
      ProxyFaultKind::bad_command, has_peer ? std::optional(command.peer) : std::nullopt, ErrorKind::internal,
      {.what =
           fmt::format("ring {}, command {}: bad field {}", ring, rings_[ring].consumer.taken() - 1, to_string(field)),
       .where = fmt::format("{}, call {}", where(), epoch),
       .values = check_.explain(command, field, epoch)});
}

void ProxyEngine::fail_request(const Event& event) const {
  const char* what = event.kind == EventKind::own_failed ? "a report of what has come" : "a request";
  throw ProxyFaultError(ProxyFaultKind::failed_request, event.peer, ErrorKind::peer_lost,
                        {.what = fmt::format("{} to rank {} failed", what, event.peer.value),
                         .where = where(),
                         .values = fmt::format("transport = {}, status = {} ({})", transport_.caps().name, event.status,
                                               transport_.describe_failure(event))});
}

void ProxyEngine::fail_event(const Event& event, const char* what, std::string limit) const {
  throw ProxyFaultError(ProxyFaultKind::bad_event, event.peer, ErrorKind::internal,
                        {.what = what,
                         .where = where(),
                         .values = fmt::format("transport = {}, peer = {}, id = {}, immediate = {}",
                                               transport_.caps().name, event.peer.value, event.id, event.immediate),
                         .limit = std::move(limit)});
}

}  // namespace tilewire

#include "transport/rc/queue.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <random>

#include "transport/rc/rc_port.h"
#include "transport/verbs/path_check.h"

namespace tilewire {
namespace {

using namespace verbs;

constexpr uint32_t kRcSignalEvery = 16;  // requests, so that a long chain completes in parts
constexpr uint8_t kMinRnrTimer = 12;     // 0.64 ms
constexpr uint8_t kHopLimit = 64;
constexpr uint32_t kPsnMask = 0xffffff;

uint32_t random_psn() {
  static thread_local std::mt19937 random{std::random_device{}()};
  return random() & kPsnMask;
}

}  // namespace

uint64_t RcQueueScratch::bytes(uint32_t send_entries) {
  const uint64_t values = std::bit_ceil(send_entries + RcQueue::kOwnEntries) * sizeof(uint64_t);
  return sizeof(RcQueueScratch) + (values + 63) / 64 * 64;
}

uint32_t RcQueue::completion_entries(const RcOptions& options) {
  return options.send_entries + kOwnEntries + options.receive_entries;
}

RcQueue::RcQueue(const Setup& setup)
    : setup_(setup),
      first_psn_(random_psn()),
      flights_(std::bit_ceil(setup.options->send_entries + kOwnEntries)),
      chain_(setup.options->send_entries + kOwnEntries),
      chain_sges_(chain_.size()),
      taken_(setup.options->receive_entries),
      receive_chain_(setup.options->receive_entries) {
  make_queue_pair();
  abi::QpAttr attr{};
  attr.qp_state = abi::kQpInit;
  attr.port_num = setup_.port->number;
  attr.qp_access_flags = abi::kAccessLocalWrite | abi::kAccessRemoteWrite;
  modify(attr, abi::kMaskState | abi::kMaskPkeyIndex | abi::kMaskPort | abi::kMaskAccessFlags, "INIT");
  post_receives(setup_.options->receive_entries, nullptr);
}

void RcQueue::make_queue_pair() {
  abi::QpInitAttr attr{};
  attr.send_cq = attr.recv_cq = setup_.cq;
  attr.qp_type = abi::kQpRc;
  for (const uint32_t inline_bytes : {setup_.options->inline_bytes, 0u}) {
    attr.cap = {.max_send_wr = setup_.options->send_entries + kOwnEntries,
                .max_recv_wr = setup_.options->receive_entries,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = inline_bytes};
    qp_ = Qp(*setup_.verbs, setup_.verbs->create_qp(setup_.pd, &attr));
    if (qp_ || setup_.options->inline_bytes == 0) break;
  }
  if (!qp_) {
    throw Error(ErrorKind::resource,
                {.what = "a queue pair could not be made",
                 .where = setup_.where,
                 .values = fmt::format("{} send and {} receive entries: {}", setup_.options->send_entries + kOwnEntries,
                                       setup_.options->receive_entries, errno_text(errno)),
                 .limit = fmt::format("the device has {} queue pairs of {} entries", setup_.port->device.max_qp,
                                      setup_.port->device.max_qp_wr),
                 .advice = "lower rc_send_entries, rc_receive_entries or rc_channels"});
  }
  has_inline_ = attr.cap.max_inline_data >= sizeof(uint64_t) && setup_.options->inline_bytes >= sizeof(uint64_t);
}

RcQueueEnd RcQueue::end() const {
  return {.peer = setup_.peer,
          .channel = setup_.channel,
          .number = qp_->qp_num,
          .first_psn = first_psn_,
          .scratch = reinterpret_cast<uint64_t>(setup_.scratch)};
}

void RcQueue::modify(abi::QpAttr& attr, int mask, const char* step) {
  const int error = setup_.verbs->modify_qp(qp_.get(), &attr, mask);
  if (error == 0) return;
  throw Error(ErrorKind::unavailable,
              {.what = fmt::format("a queue pair to rank {} could not be brought to {}", setup_.peer.value, step),
               .where = setup_.where,
               .values = fmt::format("port {} (now {}): {}", setup_.port->text(), setup_.port->state_now(*setup_.verbs),
                                     errno_text(error)),
               .advice = "look at the GID, the route to the peer and the traffic class; try rc_gid_index"});
}

abi::AhAttr RcQueue::path_to(const RcAddress& peer) const {
  abi::AhAttr path{};
  path.port_num = setup_.port->number;
  path.sl = setup_.options->service_level;
  path.dlid = peer.lid;
  // An InfiniBand path within a subnet needs no global address.
  const auto& own = setup_.port->gid.gid;
  path.is_global = setup_.port->is_ethernet() || !std::equal(own.begin(), own.begin() + 8, peer.gid.begin()) ? 1 : 0;
  path.grh = {.dgid = peer.gid,
              .flow_label = 0,
              .sgid_index = static_cast<uint8_t>(setup_.port->gid.index),
              .hop_limit = kHopLimit,
              .traffic_class = setup_.port->is_ethernet() ? setup_.options->traffic_class : uint8_t{0}};
  return path;
}

void RcQueue::connect(const RcAddress& peer, const RcQueueEnd& end) {
  peer_scratch_ = end.scratch;
  peer_scratch_key_ = peer.scratch_key;
  sent_ = SendCredits(peer.receive_entries);
  peer_number_ = end.number;
  for (size_t i = 0; i < RcQueueScratch::kProbeBytes; ++i) {
    setup_.scratch->probe_out[i] = probe_byte(i, qp_->qp_num, end.number);
  }
  abi::QpAttr attr{};
  attr.qp_state = abi::kQpRtr;
  // Both ends come to the same: an end that takes shorter packets than are sent refuses them.
  attr.path_mtu = std::min(peer.mtu, own_mtu(*setup_.port, *setup_.options));
  attr.dest_qp_num = end.number;
  attr.rq_psn = end.first_psn;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = kMinRnrTimer;
  attr.ah_attr = path_to(peer);
  modify(attr,
         abi::kMaskState | abi::kMaskAv | abi::kMaskPathMtu | abi::kMaskDestQpn | abi::kMaskRqPsn |
             abi::kMaskMaxDestRdAtomic | abi::kMaskMinRnrTimer,
         "RTR");
  attr = {};
  attr.qp_state = abi::kQpRts;
  attr.timeout = setup_.options->timeout;
  attr.retry_cnt = setup_.options->retries;
  attr.rnr_retry = setup_.options->rnr_retries;
  attr.sq_psn = first_psn_;
  attr.max_rd_atomic = 1;
  modify(attr,
         abi::kMaskState | abi::kMaskTimeout | abi::kMaskRetryCnt | abi::kMaskRnrRetry | abi::kMaskSqPsn |
             abi::kMaskMaxRdAtomic,
         "RTS");
}

uint64_t* RcQueue::value_slot(uint32_t sequence) const {
  auto* values = reinterpret_cast<uint64_t*>(reinterpret_cast<std::byte*>(setup_.scratch) + sizeof(RcQueueScratch));
  return values + (sequence & (flights_.size() - 1));
}

bool RcQueue::has_room_for_immediate() {
  sent_.set_taken(std::atomic_ref(setup_.scratch->taken).load(std::memory_order_acquire));
  return sent_.has_room();
}

abi::SendWr& RcQueue::chain(FlightKind kind, uint64_t id) {
  flights_[added_ & (flights_.size() - 1)] = {id, kind};
  abi::SendWr& wr = chain_[chained_];
  wr = {};
  wr.wr_id = uint64_t{setup_.number} << 32 | added_;
  wr.opcode = abi::kWrRdmaWrite;
  wr.sg_list = &chain_sges_[chained_];
  if (added_ % kRcSignalEvery == 0) wr.send_flags = abi::kSendSignaled;
  if (chained_ > 0) chain_[chained_ - 1].next = &wr;
  ++chained_;
  ++added_;
  return wr;
}

void RcQueue::chain_piece(const Piece& piece, FlightKind kind, uint64_t id) {
  abi::SendWr& wr = chain(kind, id);
  *wr.sg_list = {piece.src, static_cast<uint32_t>(piece.bytes), piece.src_key};
  wr.num_sge = piece.bytes > 0 ? 1 : 0;
  wr.remote_addr = piece.dst;
  wr.rkey = piece.dst_key;
}

void RcQueue::chain_value(uint64_t value, uint64_t dst, uint32_t dst_key, FlightKind kind, uint64_t id) {
  uint64_t* slot = value_slot(added_);
  *slot = value;
  chain_piece({reinterpret_cast<uint64_t>(slot), dst, setup_.scratch_key, dst_key, sizeof(value)}, kind, id);
  if (has_inline_) chain_[chained_ - 1].send_flags |= abi::kSendInline;
}

bool RcQueue::try_add(const WriteRequest& request, std::span<const Piece> pieces) {
  const size_t needed = std::max<size_t>(1, pieces.size());
  if (in_flight() + needed > setup_.options->send_entries) return false;
  if (request.kind == RequestKind::write_value) {
    chain_value(request.value, pieces[0].dst, pieces[0].dst_key, FlightKind::end_of_request, request.id);
    return true;
  }
  const bool has_immediate = request.kind == RequestKind::write_with_immediate;
  if (has_immediate && !has_room_for_immediate()) return false;
  for (size_t i = 0; i + 1 < pieces.size(); ++i) chain_piece(pieces[i], FlightKind::part, request.id);
  const Piece nothing{.dst = peer_scratch_, .dst_key = peer_scratch_key_};
  chain_piece(pieces.empty() ? nothing : pieces.back(), FlightKind::end_of_request, request.id);
  if (has_immediate) {
    chain_[chained_ - 1].opcode = abi::kWrRdmaWriteWithImm;
    chain_[chained_ - 1].imm_data = __builtin_bswap32(request.immediate);
    sent_.use();
  }
  return true;
}

void RcQueue::flush(EventList& events) {
  if (chained_ == 0) return;
  chain_[chained_ - 1].send_flags |= abi::kSendSignaled;
  chained_ = 0;
  // On a queue pair that has failed a post succeeds, and is flushed; here too.
  if (is_broken_) return fail_all(cause_, events);
  abi::SendWr* bad = nullptr;
  // Within the depth that was asked for a post is always taken, unless the device is gone.
  if (setup_.verbs->post_send(qp_.get(), chain_.data(), &bad) != 0) fail_all(abi::kWcLocQpOpErr, events);
}

void RcQueue::settle(uint32_t until, EventList& events) {
  for (; completed_ != until; ++completed_) {
    const Flight& flight = flights_[completed_ & (flights_.size() - 1)];
    if (flight.kind != FlightKind::end_of_request) continue;
    events.add({.kind = EventKind::completed, .peer = setup_.peer, .id = flight.id});
  }
}

// What is under way never went. The first request behind the cause says it, whatever it hit; where there is none it is
// said by itself, so that the failure of a queue is always told.
void RcQueue::fail_all(int32_t status, EventList& events) {
  bool is_told = std::exchange(is_broken_, true);
  if (!is_told) cause_ = status;
  const bool is_own = completed_ != added_;  // where no request is under way
  for (; completed_ != added_; ++completed_) {
    const Flight& flight = flights_[completed_ & (flights_.size() - 1)];
    if (flight.kind != FlightKind::end_of_request) continue;
    events.add({.kind = EventKind::failed, .peer = setup_.peer, .id = flight.id, .status = status});
    is_told = true;
    status = abi::kWcWrFlushErr;
  }
  if (is_told) return;
  events.add({.kind = is_own ? EventKind::own_failed : EventKind::failed, .peer = setup_.peer, .status = status});
}

void RcQueue::take_send(const abi::Wc& wc, EventList& events) {
  if (is_broken_) return;  // all that was in flight is settled
  const auto sequence = static_cast<uint32_t>(wc.wr_id);
  if (wc.status == abi::kWcSuccess) {
    settle(sequence + 1, events);
    if (is_flushed_ && is_idle()) fail_all(abi::kWcWrFlushErr, events);
    return;
  }
  settle(sequence, events);
  fail_all(wc.status, events);
}

void RcQueue::take_receive(const abi::Wc& wc, EventList& events) {
  if (wc.status != abi::kWcSuccess) {
    // The queue pair has failed: by something under way, which will say what it was, or by a request of the other end
    // that was refused here.
    if (wc.status == abi::kWcWrFlushErr && !is_idle()) {
      is_flushed_ = true;
    } else if (!is_broken_) {
      fail_all(wc.status, events);
    }
    return;
  }
  taken_.add();
  ++to_renew_;
  events.add({.kind = EventKind::arrived, .peer = setup_.peer, .immediate = __builtin_bswap32(wc.imm_data)});
}

void RcQueue::post_receives(uint32_t count, EventList* events) {
  for (uint32_t i = 0; i < count; ++i) {
    receive_chain_[i] = {.wr_id = kReceiveBit | uint64_t{setup_.number} << 32,
                         .next = i + 1 < count ? &receive_chain_[i + 1] : nullptr,
                         .sg_list = nullptr,
                         .num_sge = 0};
  }
  abi::RecvWr* bad = nullptr;
  const int error = setup_.verbs->post_recv(qp_.get(), receive_chain_.data(), &bad);
  if (error == 0) return;
  if (events != nullptr) return fail_all(abi::kWcLocQpOpErr, *events);
  throw Error(ErrorKind::resource, {.what = "receives could not be posted",
                                    .where = setup_.where,
                                    .values = fmt::format("{} entries: {}", count, errno_text(error)),
                                    .advice = "lower rc_receive_entries"});
}

void RcQueue::renew_receives(EventList& events) {
  if (is_failed()) return;
  if (to_renew_ > 0) {
    post_receives(to_renew_, &events);
    to_renew_ = 0;
  }
  if (taken_.is_to_be_told()) report_taken(events);
}

// Without an entry for it completions are on their way, and renew_receives() comes again with them.
void RcQueue::report_taken(EventList& events) {
  if (in_flight() >= setup_.options->send_entries + kOwnEntries) return;
  chain_value(taken_.in_all(), peer_scratch_ + offsetof(RcQueueScratch, taken), peer_scratch_key_, FlightKind::own, 0);
  taken_.tell();
  flush(events);
}

void RcQueue::send_probe(EventList& events) {
  chain_piece(
      {reinterpret_cast<uint64_t>(setup_.scratch->probe_out), peer_scratch_ + offsetof(RcQueueScratch, probe_in),
       setup_.scratch_key, peer_scratch_key_, RcQueueScratch::kProbeBytes},
      FlightKind::own, 0);
  chain_piece({.dst = peer_scratch_, .dst_key = peer_scratch_key_}, FlightKind::own, 0);
  chain_[chained_ - 1].opcode = abi::kWrRdmaWriteWithImm;
  sent_.use();
  flush(events);
}

bool RcQueue::has_probe() const {
  if (taken_.in_all() == 0) return false;  // its immediate is behind it: until that is here it may be half of it
  for (size_t i = 0; i < RcQueueScratch::kProbeBytes; ++i) {
    if (setup_.scratch->probe_in[i] != probe_byte(i, peer_number_, qp_->qp_num)) return false;
  }
  return true;
}

}  // namespace tilewire

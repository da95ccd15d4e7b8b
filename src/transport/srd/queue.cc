#include "transport/srd/queue.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>

namespace tilewire {

using namespace verbs;

namespace {

constexpr uint32_t kReceivesAtOnce = 256;

}  // namespace

SrdQueue::SrdQueue(const Setup& setup) : setup_(setup) {
  sent_ = make_completions(setup_.send_entries, send_cq_);
  arrived_ = make_completions(setup_.receive_entries, receive_cq_);
  make_queue_pair();
  make_ready();
  if (setup_.is_unsolicited) return;
  receive_chain_.resize(std::min(setup_.receive_entries, kReceivesAtOnce));
  post_receives(setup_.receive_entries);
}

abi::CqEx* SrdQueue::make_completions(uint32_t entries, Cq& owner) {
  abi::CqInitAttrEx attr{};
  attr.cqe = entries;
  attr.wc_flags = abi::kWcStandardFlags;
  abi::EfaCqInitAttr efa{};
  if (setup_.is_unsolicited) efa.wc_flags = abi::kEfaWcWithIsUnsolicited;
  abi::CqEx* cq = setup_.libraries.efa->create_cq(setup_.port->port.context.get(), &attr, &efa, sizeof(efa));
  if (cq == nullptr) {
    throw Error(ErrorKind::resource, {.what = "a completion queue could not be made",
                                      .where = setup_.where,
                                      .values = fmt::format("{} entries: {}", entries, errno_text(errno)),
                                      .limit = fmt::format("the device has {}", setup_.port->port.device.max_cqe),
                                      .advice = "lower srd_channels, srd_send_entries or srd_receive_entries"});
  }
  owner = Cq(*setup_.libraries.verbs, &cq->base);
  return cq;
}

void SrdQueue::make_queue_pair() {
  abi::QpInitAttrEx attr{};
  attr.send_cq = send_cq_.get();
  attr.recv_cq = receive_cq_.get();
  attr.cap = {.max_send_wr = setup_.send_entries,
              .max_recv_wr = setup_.is_unsolicited ? 1 : setup_.receive_entries,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  attr.qp_type = abi::kQpDriver;
  attr.comp_mask = abi::kInitAttrPd | abi::kInitAttrSendOps;
  attr.pd = setup_.pd;
  attr.send_ops_flags = abi::kSendOpsRdmaWrite | abi::kSendOpsRdmaWriteWithImm;
  abi::EfaQpInitAttr efa{};
  efa.driver_qp_type = abi::kEfaSrd;
  if (setup_.is_unsolicited) efa.flags = abi::kEfaQpUnsolicitedWriteRecv;
  qp_ = Qp(*setup_.libraries.verbs,
           setup_.libraries.efa->create_qp(setup_.port->port.context.get(), &attr, &efa, sizeof(efa)));
  if (!qp_) {
    throw Error(ErrorKind::resource, {.what = "an SRD queue pair could not be made",
                                      .where = setup_.where,
                                      .values = fmt::format("{} send and {} receive entries: {}", setup_.send_entries,
                                                            setup_.receive_entries, errno_text(errno)),
                                      .limit = fmt::format("the device has {} queue pairs of {} and {} entries",
                                                           setup_.port->port.device.max_qp, setup_.port->efa.max_sq_wr,
                                                           setup_.port->efa.max_rq_wr),
                                      .advice = "lower srd_channels, srd_send_entries or srd_receive_entries"});
  }
  ex_ = setup_.libraries.verbs->qp_to_qp_ex(qp_.get());
}

// EFA takes these masks and no others.
void SrdQueue::make_ready() {
  abi::QpAttr attr{};
  attr.qp_state = abi::kQpInit;
  attr.port_num = setup_.port->port.number;
  attr.qkey = setup_.qkey;
  modify(attr, abi::kMaskState | abi::kMaskPkeyIndex | abi::kMaskPort | abi::kMaskQkey, "INIT");
  attr = {};
  attr.qp_state = abi::kQpRtr;
  modify(attr, abi::kMaskState, "RTR");
  attr = {};
  attr.qp_state = abi::kQpRts;
  attr.rnr_retry = setup_.rnr_retries;
  const bool has_rnr_retry = setup_.port->has(abi::kEfaCapRnrRetry);
  modify(attr, abi::kMaskState | abi::kMaskSqPsn | (has_rnr_retry ? abi::kMaskRnrRetry : 0), "RTS");
}

void SrdQueue::modify(abi::QpAttr& attr, int mask, const char* step) {
  const int error = setup_.libraries.verbs->modify_qp(qp_.get(), &attr, mask);
  if (error == 0) return;
  throw Error(ErrorKind::unavailable,
              {.what = fmt::format("an SRD queue pair could not be brought to {}", step),
               .where = setup_.where,
               .values = fmt::format("port {}: {}", setup_.port->port.text(), errno_text(error)),
               .advice = "look at the state of the device (ibv_devinfo)"});
}

void SrdQueue::end_request(const SrdTarget& target, const Piece& piece) {
  ex_->wr_set_sge(ex_, piece.src_key, piece.src, static_cast<uint32_t>(piece.bytes));
  ex_->wr_set_ud_addr(ex_, target.ah, target.queue, target.qkey);
}

void SrdQueue::add_write(uint32_t flight, const SrdTarget& target, const Piece& piece) {
  ex_->wr_id = flight;
  ex_->wr_flags = abi::kSendSignaled;
  ex_->wr_rdma_write(ex_, piece.dst_key, piece.dst);
  end_request(target, piece);
}

void SrdQueue::add_immediate(uint32_t flight, const SrdTarget& target, const Piece& piece, uint32_t immediate) {
  ex_->wr_id = flight;
  ex_->wr_flags = abi::kSendSignaled;
  ex_->wr_rdma_write_imm(ex_, piece.dst_key, piece.dst, __builtin_bswap32(immediate));
  end_request(target, piece);
}

void SrdQueue::post_receives(uint32_t count) {
  while (count > 0) {
    const uint32_t now = std::min(count, static_cast<uint32_t>(receive_chain_.size()));
    for (uint32_t i = 0; i < now; ++i) {
      receive_chain_[i] = {.wr_id = 0,
                           .next = i + 1 < now ? &receive_chain_[i + 1] : nullptr,
                           .sg_list = &setup_.received,
                           .num_sge = 1};
    }
    abi::RecvWr* bad = nullptr;
    const int error = setup_.libraries.verbs->post_recv(qp_.get(), receive_chain_.data(), &bad);
    if (error != 0) {
      throw Error(ErrorKind::resource, {.what = "receives could not be posted",
                                        .where = setup_.where,
                                        .values = fmt::format("{} entries: {}", now, errno_text(error)),
                                        .advice = "lower srd_receive_entries"});
    }
    count -= now;
  }
}

void SrdQueue::renew_receives() {
  if (to_renew_ == 0 || receive_failure_ != 0) return;
  if (!setup_.is_unsolicited) post_receives(to_renew_);
  to_renew_ = 0;
}

void SrdQueue::fail_receive() const {
  throw Error(ErrorKind::unavailable,
              {.what = "the device has given up a receive",
               .where = setup_.where,
               .values = fmt::format("{}, port {}", srd_status_text(*setup_.libraries.verbs, receive_failure_),
                                     setup_.port->port.name),
               .advice = "look at the state of the device (ibv_devinfo)"});
}

void SrdQueue::fail_poll(int error) const {
  throw Error(ErrorKind::unavailable, {.what = "the device does not tell its completions",
                                       .where = setup_.where,
                                       .values = fmt::format("{}, port {}", errno_text(error), setup_.port->port.name),
                                       .advice = "look at the state of the device (ibv_devinfo)"});
}

}  // namespace tilewire

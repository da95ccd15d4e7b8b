// One SRD queue pair with its two completion queues. It has no peer of its own: each request says where it goes.
//
// Every request is signalled and has one piece of memory, as EFA wants it. Requests are built between start() and
// finish(), which posts all of them or none.
//
// Thread-safety: one thread.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "transport/srd/srd_port.h"
#include "transport/srd/status.h"
#include "transport/verbs/handles.h"
#include "transport/verbs/pieces.h"

namespace tilewire {

// Where a request goes: the peer's queue pair, and how to reach it.
struct SrdTarget {
  verbs::abi::Ah* ah = nullptr;
  uint32_t queue = 0;
  uint32_t qkey = 0;
};

struct SrdSent {
  uint32_t flight = 0;
  int32_t status = 0;  // 0 for success, else as srd_status() packs it
};

struct SrdArrived {
  uint64_t source = 0;  // as srd_source() packs it
  uint32_t immediate = 0;
};

// Who sent: numbers of queue pairs are given out by each device for itself, so the address handle belongs to it.
inline uint64_t srd_source(uint32_t ah_number, uint32_t queue) { return uint64_t{ah_number} << 32 | queue; }

class SrdQueue {
 public:
  struct Setup {
    SrdLibraries libraries;
    const SrdPort* port = nullptr;
    verbs::abi::Pd* pd = nullptr;
    uint32_t qkey = 0;
    uint32_t send_entries = 0;
    uint32_t receive_entries = 0;
    bool is_unsolicited = false;
    uint8_t rnr_retries = 0;
    verbs::abi::Sge received{};  // registered memory, none of it used: libefa passes over a receive that has none
    std::string where{};
  };

  // Makes the queue pair, with all its receives, ready to send. Throws Error(resource, unavailable).
  explicit SrdQueue(const Setup& setup);

  uint32_t number() const { return qp_->qp_num; }

  void start() { ex_->wr_start(ex_); }
  // `flight` comes back with its completion. A piece without bytes needs an address and keys all the same.
  void add_write(uint32_t flight, const SrdTarget& target, const verbs::Piece& piece);
  void add_immediate(uint32_t flight, const SrdTarget& target, const verbs::Piece& piece, uint32_t immediate);
  // 0, ENOMEM where the queue is full, or what else the library answers; then none of them is posted.
  int finish() { return ex_->wr_complete(ex_); }

  // Calls `take` with each completion there is, up to a batch.
  template <class Take>
  void take_sent(Take&& take);
  template <class Take>
  void take_arrived(Take&& take);
  // Gives entries back for the immediates taken.
  void renew_receives();
  // Of a receive that the device has given up, 0 where there is none; of several what says most.
  int32_t receive_failure() const { return receive_failure_; }
  [[noreturn]] void fail_receive() const;

 private:
  verbs::abi::CqEx* make_completions(uint32_t entries, verbs::Cq& owner);
  void make_queue_pair();
  void make_ready();
  void modify(verbs::abi::QpAttr& attr, int mask, const char* step);
  void post_receives(uint32_t count);
  [[noreturn]] void fail_poll(int error) const;
  template <class Take>
  void poll(verbs::abi::CqEx* cq, Take&& take);
  void end_request(const SrdTarget& target, const verbs::Piece& piece);

  static constexpr int kPollBatch = 64;

  Setup setup_;
  verbs::Cq send_cq_;
  verbs::Cq receive_cq_;
  verbs::Qp qp_;
  verbs::abi::CqEx* sent_ = nullptr;
  verbs::abi::CqEx* arrived_ = nullptr;
  verbs::abi::QpEx* ex_ = nullptr;
  uint32_t to_renew_ = 0;
  int32_t receive_failure_ = 0;
  std::vector<verbs::abi::RecvWr> receive_chain_;
};

template <class Take>
void SrdQueue::poll(verbs::abi::CqEx* cq, Take&& take) {
  verbs::abi::PollCqAttr attr{};
  const auto is_there = [this](int error) {
    if (error != 0 && error != ENOENT) fail_poll(error);
    return error == 0;
  };
  if (!is_there(cq->start_poll(cq, &attr))) return;
  // libefa holds a lock in between, which destroying the queue pair takes too.
  struct End {
    verbs::abi::CqEx* cq;
    ~End() { cq->end_poll(cq); }
  } const end{cq};
  for (int left = kPollBatch;;) {
    take();
    if (--left == 0 || !is_there(cq->next_poll(cq))) break;
  }
}

template <class Take>
void SrdQueue::take_sent(Take&& take) {
  poll(sent_, [&] {
    const bool is_good = sent_->status == verbs::abi::kWcSuccess;
    take(SrdSent{.flight = static_cast<uint32_t>(sent_->wr_id),
                 .status = is_good ? 0 : srd_status(sent_->status, sent_->read_vendor_err(sent_))});
  });
}

template <class Take>
void SrdQueue::take_arrived(Take&& take) {
  poll(arrived_, [&] {
    // Its number means nothing where no receive was taken.
    if (arrived_->status != verbs::abi::kWcSuccess) {
      const int32_t status = srd_status(arrived_->status, arrived_->read_vendor_err(arrived_));
      if (receive_failure_ == 0 || is_flush(receive_failure_)) receive_failure_ = status;
      return;
    }
    ++to_renew_;
    take(SrdArrived{.source = srd_source(arrived_->read_slid(arrived_), arrived_->read_src_qp(arrived_)),
                    .immediate = __builtin_bswap32(arrived_->read_imm_data(arrived_))});
  });
}

}  // namespace tilewire

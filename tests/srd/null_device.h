// An SRD device whose hot calls do next to nothing, so that what is measured or counted over it is the caller's own. It is
// a fake device with other functions behind its pointers: requests complete at once, each immediate comes back as if the
// peer had sent one too, and the peer says in time that it has taken what it got.
//
// One at a time; one thread.
#pragma once

#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/srd/address.h"
#include "transport/srd/queue.h"

namespace tilewire {

class NullDevice {
 public:
  static constexpr uint32_t kPeerQueue = 5000;  // of the peer; the one behind it is for reports

  static constexpr uint32_t kPeerHandle = 1;

  explicit NullDevice(const SrdLibraries& real) : verbs_(*real.verbs), efa_(*real.efa) {
    real_efa() = real.efa;
    verbs_.post_recv = [](verbs::abi::Qp*, verbs::abi::RecvWr*, verbs::abi::RecvWr**) { return 0; };
    efa_.create_cq = [](verbs::abi::Context* context, verbs::abi::CqInitAttrEx* attr, verbs::abi::EfaCqInitAttr* efa,
                        uint32_t bytes) {
      verbs::abi::CqEx* cq = real_efa()->create_cq(context, attr, efa, bytes);
      fill(*cq);
      return cq;
    };
    efa_.create_qp = [](verbs::abi::Context* context, verbs::abi::QpInitAttrEx* attr, verbs::abi::EfaQpInitAttr* efa,
                        uint32_t bytes) {
      verbs::abi::Qp* qp = real_efa()->create_qp(context, attr, efa, bytes);
      add_queue(*reinterpret_cast<verbs::abi::QpEx*>(qp), attr->send_cq, attr->recv_cq);
      return qp;
    };
    efa_.query_ah = [](verbs::abi::Ah*, verbs::abi::EfaAhAttr* attr, uint32_t) {
      *attr = {};
      attr->ahn = kPeerHandle;
      return 0;
    };
    queues().clear();
    polled().clear();
  }

  SrdLibraries libraries() const { return {&verbs_, &efa_}; }

 private:
  struct Entry {
    uint64_t wr_id = 0;
    uint32_t immediate = 0;  // network byte order
    uint32_t source = 0;
  };
  struct Polled {
    verbs::abi::CqEx* cq = nullptr;
    std::array<Entry, 8192> entries{};
    uint32_t head = 0, tail = 0;

    void push(const Entry& entry) { entries[tail++ % entries.size()] = entry; }
    int show() {
      if (head == tail) return ENOENT;
      cq->status = verbs::abi::kWcSuccess;
      cq->wr_id = entries[head % entries.size()].wr_id;
      return 0;
    }
    const Entry& now() const { return entries[head % entries.size()]; }
  };
  struct Queue {
    verbs::abi::QpEx* qp = nullptr;
    Polled* sent = nullptr;
    Polled* arrived = nullptr;
    uint32_t immediates = 0;
    uint32_t session = 0;
    std::array<Entry, 8192> batch{};
  };

  static const verbs::Efa*& real_efa() {
    static const verbs::Efa* efa = nullptr;
    return efa;
  }
  static std::vector<std::unique_ptr<Queue>>& queues() {
    static std::vector<std::unique_ptr<Queue>> all;
    return all;
  }
  static std::vector<std::unique_ptr<Polled>>& polled() {
    static std::vector<std::unique_ptr<Polled>> all;
    return all;
  }
  template <class List, class Match>
  static auto& find(List& list, Match&& match) {
    size_t i = 0;
    while (!match(*list[i])) ++i;
    return *list[i];
  }
  static Polled& of(const verbs::abi::CqEx* cq) {
    return find(polled(), [&](const Polled& p) { return p.cq == cq; });
  }
  static Queue& of(const verbs::abi::QpEx* qp) {
    return find(queues(), [&](const Queue& q) { return q.qp == qp; });
  }

  static void fill(verbs::abi::CqEx& cq) {
    polled().push_back(std::make_unique<Polled>());
    polled().back()->cq = &cq;
    using Cq = verbs::abi::CqEx;
    cq.start_poll = [](Cq* q, verbs::abi::PollCqAttr*) { return of(q).show(); };
    cq.next_poll = [](Cq* q) { return ++of(q).head, of(q).show(); };
    cq.end_poll = [](Cq* q) {
      if (of(q).head != of(q).tail) ++of(q).head;
    };
    cq.read_imm_data = [](Cq* q) { return of(q).now().immediate; };
    cq.read_slid = [](Cq*) { return kPeerHandle; };
    cq.read_src_qp = [](Cq* q) { return of(q).now().source; };
  }
  static void add_queue(verbs::abi::QpEx& qp, verbs::abi::Cq* sent, verbs::abi::Cq* arrived) {
    queues().push_back(std::make_unique<Queue>());
    Queue& queue = *queues().back();
    queue.qp = &qp;
    queue.sent = &of(reinterpret_cast<verbs::abi::CqEx*>(sent));
    queue.arrived = &of(reinterpret_cast<verbs::abi::CqEx*>(arrived));
    using Qp = verbs::abi::QpEx;
    qp.wr_start = [](Qp* q) { of(q).session = 0; };
    qp.wr_rdma_write = [](Qp* q, uint32_t, uint64_t) { of(q).batch[of(q).session++] = {.wr_id = q->wr_id}; };
    qp.wr_rdma_write_imm = [](Qp* q, uint32_t, uint64_t, uint32_t immediate) {
      of(q).batch[of(q).session++] = {q->wr_id, immediate, kPeerQueue};
    };
    qp.wr_set_sge = [](Qp*, uint32_t, uint64_t, uint32_t) {};
    qp.wr_set_ud_addr = [](Qp*, verbs::abi::Ah*, uint32_t, uint32_t) {};
    qp.wr_complete = [](Qp* q) { return carry(of(q)); };
  }
  static int carry(Queue& queue) {
    const bool is_reports = &queue == queues().back().get();
    for (uint32_t i = 0; i < queue.session; ++i) {
      queue.sent->push(queue.batch[i]);
      if (is_reports) continue;
      queue.arrived->push(queue.batch[i]);
      if (++queue.immediates % 32 != 0) continue;
      queues().back()->arrived->push({0, __builtin_bswap32(SrdReport{0, 32}.pack()), kPeerQueue + 1});
    }
    return 0;
  }

  verbs::Verbs verbs_;
  verbs::Efa efa_;
};

}  // namespace tilewire

// RC devices whose hot calls do next to nothing, so that what is counted over them is the caller's own: a request
// completes at once, an immediate is there at once, and of what is written words alone are. One thread; one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "transport/verbs/fake_device.h"

namespace tilewire {

class LoopingDevice {
 public:
  explicit LoopingDevice(int nics) {
    for (int i = 0; i < nics; ++i) device_.ports.push_back(FakeDevice::port("nic" + std::to_string(i)));
    real() = device_.table();
    queues().clear();
    polled().clear();
  }

  verbs::Verbs table() const {
    using namespace verbs;
    Verbs v = real();
    v.create_cq = [](abi::Context* context, int entries, void* user, abi::Channel* channel, int vector) {
      abi::Cq* cq = real().create_cq(context, entries, user, channel, vector);
      polled().push_back({.cq = cq});
      return cq;
    };
    v.create_qp = [](abi::Pd* pd, abi::QpInitAttr* attr) {
      abi::Qp* qp = real().create_qp(pd, attr);
      queues().push_back({.qp = qp, .cq = attr->send_cq});
      return qp;
    };
    v.modify_qp = [](abi::Qp* qp, abi::QpAttr* attr, int) {
      if (attr->qp_state == abi::kQpRtr) of(qp).peer = attr->dest_qp_num;
      return 0;
    };
    v.post_recv = [](abi::Qp* qp, abi::RecvWr* wr, abi::RecvWr**) {
      of(qp).receive_id = wr->wr_id;
      return 0;
    };
    v.post_send = [](abi::Qp* qp, abi::SendWr* wr, abi::SendWr**) {
      for (; wr != nullptr; wr = wr->next) carry(of(qp), *wr);
      return 0;
    };
    v.poll_cq = [](abi::Cq* cq, int most, abi::Wc* wc) {
      Polled& from = of(cq);
      int count = 0;
      for (; count < most && from.head != from.tail; ++count) wc[count] = from.entries[from.head++ % kEntries];
      return count;
    };
    return v;
  }

 private:
  static constexpr size_t kEntries = 8192;
  struct Polled {
    verbs::abi::Cq* cq = nullptr;
    uint32_t head = 0, tail = 0;
    std::vector<verbs::abi::Wc> entries = std::vector<verbs::abi::Wc>(kEntries);

    verbs::abi::Wc& next() { return entries[tail++ % kEntries] = {}; }
  };
  struct Queue {
    verbs::abi::Qp* qp = nullptr;
    verbs::abi::Cq* cq = nullptr;
    uint32_t peer = 0;
    uint64_t receive_id = 0;
  };

  static verbs::Verbs& real() {
    static verbs::Verbs table;
    return table;
  }
  static std::vector<Queue>& queues() {
    static std::vector<Queue> all;
    return all;
  }
  static std::vector<Polled>& polled() {
    static std::vector<Polled> all;
    return all;
  }
  template <class List, class Match>
  static auto& find(List& list, Match&& match) {
    size_t i = 0;
    while (!match(list[i])) ++i;
    return list[i];
  }
  static Queue& of(const verbs::abi::Qp* qp) {
    return find(queues(), [&](const Queue& q) { return q.qp == qp; });
  }
  static Polled& of(const verbs::abi::Cq* cq) {
    return find(polled(), [&](const Polled& p) { return p.cq == cq; });
  }
  static void carry(const Queue& from, const verbs::abi::SendWr& wr) {
    if (wr.num_sge > 0 && wr.sg_list->length == sizeof(uint64_t)) {
      std::memcpy(reinterpret_cast<void*>(wr.remote_addr), reinterpret_cast<const void*>(wr.sg_list->addr),
                  sizeof(uint64_t));
    }
    if (wr.opcode == verbs::abi::kWrRdmaWriteWithImm) {
      const Queue& to = find(queues(), [&](const Queue& q) { return q.qp->qp_num == from.peer; });
      verbs::abi::Wc& arrived = of(to.cq).next();
      arrived.wr_id = to.receive_id;
      arrived.imm_data = wr.imm_data;
    }
    if ((wr.send_flags & verbs::abi::kSendSignaled) != 0) of(from.cq).next().wr_id = wr.wr_id;
  }

  FakeDevice device_;
};

}  // namespace tilewire

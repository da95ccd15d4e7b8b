// A queue pair of the fake device that writes to itself, made and used by the library's calls alone.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "fake_verbs/control.h"
#include "transport/srd/queue.h"
#include "transport/srd/srd_port.h"
#include "transport/verbs/handles.h"

namespace tilewire {

class RawQueue {
 public:
  static constexpr int kInitMask =
      verbs::abi::kMaskState | verbs::abi::kMaskPkeyIndex | verbs::abi::kMaskPort | verbs::abi::kMaskQkey;
  static constexpr uint32_t kQkey = 5;

  struct Completions {
    verbs::Cq owner;
    verbs::abi::CqEx* ex = nullptr;

    // How many there were; `status` is that of the last one.
    int take_all(int* status = nullptr) const {
      verbs::abi::PollCqAttr attr{};
      if (ex->start_poll(ex, &attr) != 0) return 0;
      int count = 0;
      do {
        ++count;
        if (status != nullptr) *status = ex->status;
      } while (ex->next_poll(ex) == 0);
      ex->end_poll(ex);
      return count;
    }
    // The status of the only one there is, -1 where there is none, -2 for several.
    int only() const {
      int status = -1;
      return take_all(&status) > 1 ? -2 : status;
    }
  };

  // Ready to send, without receives: immediates take none.
  explicit RawQueue(uint32_t entries = 64) : entries_(entries) {
    options_.verbs_library = options_.efa_library = FakeVerbs::library();
    libraries_ = load_srd_libraries(options_);
    port_ = srd_port_of(libraries_, open_port(library(), srd_port_wish(libraries_, options_), {}));
    pd_ = verbs::Pd(library(), library().alloc_pd(context()));
    const unsigned access = verbs::abi::kAccessLocalWrite | verbs::abi::kAccessRemoteWrite;
    mr_ = verbs::Mr(library(), library().reg_mr(pd_.get(), memory, sizeof(memory), static_cast<int>(access)));
    for (Completions* cq : {&sent, &arrived}) make_completions(*cq);
    verbs::abi::AhAttr path{};
    path.is_global = path.port_num = 1;
    path.grh.dgid = port_.port.gid.gid;
    ah_ = verbs::Ah(library(), library().create_ah(pd_.get(), &path));
    make_ready(verbs::abi::kEfaQpUnsolicitedWriteRecv);
  }

  const verbs::Verbs& library() const { return *libraries_.verbs; }
  verbs::abi::Context* context() const { return port_.port.context.get(); }
  verbs::abi::Pd* pd() const { return pd_.get(); }
  verbs::abi::Qp* qp() const { return qp_.get(); }
  verbs::abi::QpEx* ex() const { return ex_; }
  uint32_t key() const { return mr_->lkey; }
  // For another queue pair on the same device.
  SrdQueue::Setup setup() const {
    return {.libraries = libraries_,
            .port = &port_,
            .pd = pd_.get(),
            .qkey = kQkey,
            .send_entries = entries_,
            .receive_entries = entries_,
            .is_unsolicited = true,
            .where = "raw queue"};
  }

  verbs::abi::QpInitAttrEx good_attr() {
    verbs::abi::QpInitAttrEx attr{};
    attr.send_cq = sent.owner.get();
    attr.recv_cq = arrived.owner.get();
    attr.cap = {.max_send_wr = entries_, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    attr.qp_type = verbs::abi::kQpDriver;
    attr.comp_mask = verbs::abi::kInitAttrPd | verbs::abi::kInitAttrSendOps;
    attr.pd = pd_.get();
    attr.send_ops_flags = verbs::abi::kSendOpsRdmaWrite | verbs::abi::kSendOpsRdmaWriteWithImm;
    return attr;
  }
  // The errno of making another one; 0 where it was made.
  int make(verbs::abi::QpInitAttrEx attr, verbs::abi::EfaQpInitAttr efa = {}) {
    qp_.reset();
    errno = 0;
    qp_ = verbs::Qp(library(), libraries_.efa->create_qp(context(), &attr, &efa, sizeof(efa)));
    ex_ = qp_ ? library().qp_to_qp_ex(qp_.get()) : nullptr;
    return errno;
  }
  int modify(verbs::abi::QpState state, int mask) {
    verbs::abi::QpAttr attr{};
    attr.qp_state = state;
    attr.port_num = 1;
    attr.qkey = kQkey;
    return library().modify_qp(qp_.get(), &attr, mask);
  }
  void make_ready(uint16_t flags) {
    using namespace verbs::abi;
    if (make(good_attr(), {0, kEfaSrd, flags, 0, 0}) != 0 || modify(kQpInit, kInitMask) != 0 ||
        modify(kQpRtr, kMaskState) != 0 || modify(kQpRts, kMaskState | kMaskSqPsn) != 0) {
      throw std::runtime_error("no queue pair");
    }
  }

  // A write of the first 16 bytes of memory to its 64th, with an immediate, in parts.
  void begin(unsigned flags = verbs::abi::kSendSignaled) {
    ex_->wr_id = 9;
    ex_->wr_flags = flags;
    ex_->wr_rdma_write_imm(ex_, mr_->rkey, reinterpret_cast<uint64_t>(memory) + 64, 3);
  }
  void set_source() { ex_->wr_set_sge(ex_, mr_->lkey, reinterpret_cast<uint64_t>(memory), 16); }
  void set_target() { set_target(qp_->qp_num); }
  void set_target(uint32_t queue) { ex_->wr_set_ud_addr(ex_, ah_.get(), queue, kQkey); }
  void add() {
    begin();
    set_source();
    set_target();
  }

 private:
  void make_completions(Completions& cq) {
    verbs::abi::CqInitAttrEx attr{};
    attr.cqe = 4 * entries_;
    attr.wc_flags = verbs::abi::kWcStandardFlags;
    verbs::abi::EfaCqInitAttr efa{};
    cq.ex = libraries_.efa->create_cq(context(), &attr, &efa, sizeof(efa));
    cq.owner = verbs::Cq(library(), &cq.ex->base);
  }

  uint32_t entries_;
  SrdOptions options_;
  SrdLibraries libraries_;
  SrdPort port_;
  verbs::Pd pd_;

 public:
  std::byte memory[4096] = {};
  Completions sent;
  Completions arrived;

 private:
  verbs::Mr mr_;
  verbs::Ah ah_;
  verbs::Qp qp_;
  verbs::abi::QpEx* ex_ = nullptr;
};

}  // namespace tilewire

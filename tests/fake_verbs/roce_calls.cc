#include "fake_verbs/roce_calls.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "fake_verbs/nic.h"

namespace tilewire::fake_verbs {
namespace {

// Whether the device takes it at all; 0 or an errno.
int refusal_of(const FakeQp& qp, const abi::SendWr& wr) {
  constexpr unsigned kKnown = abi::kSendSignaled | abi::kSendInline;
  if (qp.ex.qp_base.state != abi::kQpRts || (wr.send_flags & ~kKnown) != 0) return EINVAL;
  if (wr.opcode != abi::kWrRdmaWrite && wr.opcode != abi::kWrRdmaWriteWithImm) return EINVAL;
  if (wr.num_sge < 0 || std::cmp_greater(wr.num_sge, qp.cap.max_send_sge)) return EINVAL;
  const uint32_t bytes = wr.num_sge > 0 ? wr.sg_list->length : 0;
  if ((wr.send_flags & abi::kSendInline) != 0 && bytes > qp.cap.max_inline_data) return EINVAL;
  if (bytes > qp.device->nic->settings.max_rdma_bytes) return EINVAL;
  return qp.under_way < qp.cap.max_send_wr ? 0 : ENOMEM;
}

Message message_of(FakeQp& qp, const abi::SendWr& wr) {
  Message message;
  message.qp = &qp;
  message.wr_id = wr.wr_id;
  message.is_signalled = qp.signals_all || (wr.send_flags & abi::kSendSignaled) != 0;
  message.has_immediate = wr.opcode == abi::kWrRdmaWriteWithImm;
  message.immediate = wr.imm_data;
  message.rkey = wr.rkey;
  message.remote = wr.remote_addr;
  message.to = qp.peer;
  message.to_qp = qp.peer_number;
  if (wr.num_sge == 0) return message;
  message.local = wr.sg_list->addr;
  message.lkey = wr.sg_list->lkey;
  message.bytes = wr.sg_list->length;
  if ((wr.send_flags & abi::kSendInline) == 0) return message;
  message.is_inline = true;
  std::memcpy(message.inline_data.data(), reinterpret_cast<const void*>(message.local), message.bytes);
  return message;
}

int post_send(abi::Qp* base, abi::SendWr* wr, abi::SendWr** bad) {
  FakeQp& qp = *reinterpret_cast<FakeQp*>(base);
  Nic& nic = *qp.device->nic;
  const std::lock_guard lock(nic.mutex);
  int error = nic.refuses("post_send") ? errno : 0;
  for (; wr != nullptr && error == 0; wr = wr->next) {
    error = refusal_of(qp, *wr);
    if (error != 0) break;
    nic.post(message_of(qp, *wr));
  }
  if (error == 0) return 0;
  ++nic.counts["refused"];
  *bad = wr;
  return error;
}

int post_recv(abi::Qp* base, abi::RecvWr* wr, abi::RecvWr** bad) {
  FakeQp& qp = *reinterpret_cast<FakeQp*>(base);
  Nic& nic = *qp.device->nic;
  const std::lock_guard lock(nic.mutex);
  if (nic.refuses("post_recv")) return errno;
  for (; wr != nullptr; wr = wr->next) {
    *bad = wr;
    if (qp.ex.qp_base.state < abi::kQpInit || std::cmp_greater(wr->num_sge, qp.cap.max_recv_sge)) return EINVAL;
    if (qp.receives.size() >= qp.cap.max_recv_wr) return ENOMEM;
    qp.receives.push(wr->wr_id);
  }
  if (qp.has_failed) nic.flush_receives(qp);
  return 0;
}

int poll_cq(abi::Cq* base, int most, abi::Wc* wc) {
  FakeCq& cq = *reinterpret_cast<FakeCq*>(base);
  if (cq.ready_count.load(std::memory_order_acquire) == 0) return 0;
  const std::lock_guard lock(cq.nic->mutex);
  cq.nic->fetch(cq, static_cast<size_t>(most));
  for (size_t i = 0; i < cq.batch.size(); ++i) wc[i] = cq.batch[i].wc;
  return static_cast<int>(cq.batch.size());
}

template <class T>
T* refuse(int error) {
  errno = error;
  return nullptr;
}

}  // namespace

void fill_roce_calls(abi::ContextOps& ops) {
  ops.post_send = post_send;
  ops.post_recv = post_recv;
  ops.poll_cq = poll_cq;
}

abi::Cq* create_roce_cq(abi::Context* context, FakeDevice& device, int entries) {
  Nic& nic = *device.nic;
  if (nic.refuses("create_cq")) return nullptr;
  if (entries <= 0 || std::cmp_greater(entries, nic.settings.max_cqe)) return refuse<abi::Cq>(EINVAL);
  auto* cq = new FakeCq;
  cq->nic = &nic;
  cq->most = static_cast<size_t>(entries);
  cq->keeps_order = true;
  cq->ex.base.context = context;
  cq->ex.base.cqe = entries;
  ++nic.counts["cq"];
  return &cq->ex.base;
}

abi::Qp* create_rc_qp(FakePd& pd, const abi::QpInitAttr& attr) {
  FakeDevice& device = *pd.device;
  Nic& nic = *device.nic;
  if (nic.refuses("create_qp")) return nullptr;
  const bool is_bad = attr.qp_type != abi::kQpRc || attr.send_cq == nullptr || attr.recv_cq == nullptr ||
                      attr.srq != nullptr || attr.cap.max_send_wr > nic.settings.max_sq_wr ||
                      attr.cap.max_recv_wr > nic.settings.max_rq_wr || attr.cap.max_send_sge > 2 ||
                      attr.cap.max_recv_sge > 2 || attr.cap.max_inline_data > kMostInlineBytes;
  if (is_bad) return refuse<abi::Qp>(EINVAL);
  if (nic.counts["qp"] >= static_cast<int64_t>(nic.settings.max_qp)) return refuse<abi::Qp>(ENOMEM);
  auto* qp = new FakeQp;
  qp->device = &device;
  qp->pd = &pd;
  qp->send_cq = reinterpret_cast<FakeCq*>(attr.send_cq);
  qp->recv_cq = reinterpret_cast<FakeCq*>(attr.recv_cq);
  qp->cap = attr.cap;
  qp->signals_all = attr.sq_sig_all != 0;
  qp->is_rc = true;
  qp->ex.qp_base.context = pd.base.context;
  qp->ex.qp_base.qp_num = device.next_qp++;
  qp->ex.qp_base.state = abi::kQpReset;
  qp->ex.qp_base.qp_type = abi::kQpRc;
  device.qps[qp->ex.qp_base.qp_num] = qp;
  ++pd.users;
  ++qp->send_cq->users;
  ++qp->recv_cq->users;
  ++nic.counts["qp"];
  return &qp->ex.qp_base;
}

bool is_right_rc_step(const FakeQp& qp, const abi::QpAttr& attr, int mask) {
  using namespace abi;
  const QpState now = qp.ex.qp_base.state;
  switch (attr.qp_state) {
    case kQpInit:
      return now == kQpReset && mask == (kMaskState | kMaskPkeyIndex | kMaskPort | kMaskAccessFlags) &&
             attr.port_num == 1 && (attr.qp_access_flags & kAccessRemoteWrite) != 0;
    case kQpRtr:
      return now == kQpInit && attr.ah_attr.is_global != 0 && attr.path_mtu >= kMtu256 && attr.path_mtu <= kMtu4096 &&
             mask == (kMaskState | kMaskAv | kMaskPathMtu | kMaskDestQpn | kMaskRqPsn | kMaskMaxDestRdAtomic |
                      kMaskMinRnrTimer);
    case kQpRts:
      return now == kQpRtr &&
             mask == (kMaskState | kMaskTimeout | kMaskRetryCnt | kMaskRnrRetry | kMaskSqPsn | kMaskMaxRdAtomic);
    default: return false;
  }
}

}  // namespace tilewire::fake_verbs

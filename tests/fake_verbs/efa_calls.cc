// The functions of libefa.so.1 that Tilewire calls, and those behind the pointers of what it hands out: requests and
// completions. It refuses what libefa refuses.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "fake_verbs/exports.h"
#include "fake_verbs/nic.h"

using namespace tilewire::fake_verbs;

namespace {

constexpr size_t kPollBatch = 64;

FakeQp& qp_of(abi::QpEx* ex) { return *reinterpret_cast<FakeQp*>(ex); }
FakeCq& cq_of(abi::CqEx* ex) { return *reinterpret_cast<FakeCq*>(ex); }

void begin_request(abi::QpEx* ex, uint32_t rkey, uint64_t remote) {
  FakeQp& qp = qp_of(ex);
  const bool is_signalled = (ex->wr_flags & abi::kSendSignaled) != 0 || qp.signals_all;
  const bool has_other_flags = (ex->wr_flags & ~(abi::kSendSignaled | abi::kSendInline)) != 0;
  if (!is_signalled || has_other_flags || ex->qp_base.state != abi::kQpRts) qp.session_error = EINVAL;
  Message message;
  message.qp = &qp;
  message.wr_id = ex->wr_id;
  message.rkey = rkey;
  message.remote = remote;
  qp.session.push_back(std::move(message));
}

Message* current(abi::QpEx* ex) {
  FakeQp& qp = qp_of(ex);
  if (!qp.session.empty()) return &qp.session.back();
  qp.session_error = EINVAL;
  return nullptr;
}

void set_sge(abi::QpEx* ex, uint32_t lkey, uint64_t addr, uint32_t length) {
  Message* message = current(ex);
  if (message == nullptr) return;
  message->lkey = lkey;
  message->local = addr;
  message->bytes = length;
  message->has_source = true;
}

int complete_session(abi::QpEx* ex) {
  FakeQp& qp = qp_of(ex);
  Nic& nic = *qp.device->nic;
  const std::lock_guard lock(nic.mutex);
  int error = qp.session_error;
  for (const Message& message : qp.session) {
    if (!message.has_source || !message.has_target || message.bytes > nic.settings.max_rdma_bytes) error = EINVAL;
  }
  if (error == 0) error = nic.send(qp);
  if (error == EINVAL) ++nic.counts["refused"];
  qp.session.clear();
  return error;
}

void fill_requests(abi::QpEx& ex) {
  ex.wr_start = [](abi::QpEx* q) {
    qp_of(q).session.clear();
    qp_of(q).session_error = 0;
  };
  ex.wr_abort = ex.wr_start;
  ex.wr_rdma_write = [](abi::QpEx* q, uint32_t rkey, uint64_t remote) { begin_request(q, rkey, remote); };
  ex.wr_rdma_write_imm = [](abi::QpEx* q, uint32_t rkey, uint64_t remote, uint32_t immediate) {
    begin_request(q, rkey, remote);
    qp_of(q).session.back().has_immediate = true;
    qp_of(q).session.back().immediate = immediate;
  };
  ex.wr_set_sge = set_sge;
  ex.wr_set_sge_list = [](abi::QpEx* q, size_t count, const abi::Sge* list) {
    if (count == 1) return set_sge(q, list->lkey, list->addr, list->length);
    qp_of(q).session_error = EINVAL;  // of RDMA requests: one
  };
  ex.wr_set_inline_data = [](abi::QpEx* q, void*, size_t) { qp_of(q).session_error = EINVAL; };
  ex.wr_set_ud_addr = [](abi::QpEx* q, abi::Ah* ah, uint32_t number, uint32_t qkey) {
    Message* message = current(q);
    if (message == nullptr) return;
    message->to = reinterpret_cast<FakeAh*>(ah)->gid;
    message->to_qp = number;
    message->qkey = qkey;
    message->has_target = true;
  };
  ex.wr_complete = complete_session;
}

const Completion& current(abi::CqEx* ex) { return cq_of(ex).batch[cq_of(ex).at]; }

int show(abi::CqEx* ex) {
  ex->status = current(ex).wc.status;
  ex->wr_id = current(ex).wc.wr_id;
  return 0;
}

int start_poll(abi::CqEx* ex, abi::PollCqAttr*) {
  FakeCq& cq = cq_of(ex);
  if (cq.ready_count.load(std::memory_order_acquire) == 0) return ENOENT;
  const std::lock_guard lock(cq.nic->mutex);
  cq.is_polled = cq.nic->fetch(cq, kPollBatch);
  return cq.is_polled ? show(ex) : ENOENT;
}

int next_poll(abi::CqEx* ex) {
  FakeCq& cq = cq_of(ex);
  return ++cq.at < cq.batch.size() ? show(ex) : ENOENT;
}

// What was fetched and not looked at comes first the next time.
void end_poll(abi::CqEx* ex) {
  FakeCq& cq = cq_of(ex);
  cq.is_polled = false;
  if (cq.at >= cq.batch.size()) return;
  const std::lock_guard lock(cq.nic->mutex);
  cq.ready.push_front(std::span(std::as_const(cq.batch)).subspan(cq.at + 1));
  cq.ready_count.store(cq.ready.size(), std::memory_order_release);
}

void fill_polling(abi::CqEx& ex) {
  ex.start_poll = start_poll;
  ex.next_poll = next_poll;
  ex.end_poll = end_poll;
  ex.read_opcode = [](abi::CqEx* q) { return current(q).wc.opcode; };
  ex.read_vendor_err = [](abi::CqEx* q) { return current(q).wc.vendor_err; };
  ex.read_byte_len = [](abi::CqEx* q) { return current(q).wc.byte_len; };
  ex.read_imm_data = [](abi::CqEx* q) { return current(q).wc.imm_data; };
  ex.read_qp_num = [](abi::CqEx* q) { return current(q).wc.qp_num; };
  ex.read_src_qp = [](abi::CqEx* q) { return current(q).wc.src_qp; };
  ex.read_wc_flags = [](abi::CqEx* q) { return current(q).wc.wc_flags; };
  ex.read_slid = [](abi::CqEx* q) { return current(q).ah_number; };
}

FakeDevice& device_of(abi::Context* context) { return *reinterpret_cast<FakeContext*>(context)->device; }

bool has_unsolicited(const FakeDevice& device) {
  const Settings& settings = device.nic->settings;
  return settings.unsolicited != 0 && (settings.solicited >> device.index & 1) == 0;
}

int refusal_of(const FakeDevice& device, const abi::QpInitAttrEx& attr, const abi::EfaQpInitAttr& efa, uint32_t bytes) {
  const Settings& settings = device.nic->settings;
  constexpr uint32_t kMask = abi::kInitAttrPd | abi::kInitAttrSendOps;
  constexpr uint64_t kWrites = abi::kSendOpsRdmaWrite | abi::kSendOpsRdmaWriteWithImm;
  if (attr.qp_type != abi::kQpDriver || bytes < 12 || efa.comp_mask != 0 || efa.reserved != 0) return EINVAL;
  if (efa.driver_qp_type != abi::kEfaSrd || (attr.comp_mask & ~kMask) != 0) return EOPNOTSUPP;
  if ((attr.comp_mask & abi::kInitAttrPd) == 0 || attr.srq != nullptr) return EINVAL;
  if ((attr.send_ops_flags & ~(settings.rdma_write != 0 ? kWrites : 0)) != 0) return EOPNOTSUPP;
  if (efa.flags != 0 && (!has_unsolicited(device) || efa.flags != abi::kEfaQpUnsolicitedWriteRecv)) return EOPNOTSUPP;
  if (attr.send_cq == nullptr || attr.recv_cq == nullptr) return EINVAL;
  const abi::QpCap& cap = attr.cap;
  const bool is_too_much = cap.max_send_wr > settings.max_sq_wr || cap.max_recv_wr > settings.max_rq_wr ||
                           cap.max_send_sge > 2 || cap.max_recv_sge > 2 || cap.max_inline_data > 32;
  return is_too_much ? EINVAL : 0;
}

}  // namespace

EXPORT int efadv_query_device(abi::Context* context, abi::EfaDeviceAttr* attr, uint32_t bytes) {
  Nic& nic = *device_of(context).nic;
  const std::lock_guard lock(nic.mutex);
  const Settings& settings = nic.settings;
  if (settings.efa == 0) return EOPNOTSUPP;
  abi::EfaDeviceAttr all{};
  all.max_sq_wr = static_cast<uint32_t>(settings.max_sq_wr);
  all.max_rq_wr = static_cast<uint32_t>(settings.max_rq_wr);
  all.max_sq_sge = all.max_rq_sge = 2;
  all.inline_buf_size = 32;
  all.device_caps = abi::kEfaCapRdmaRead | abi::kEfaCapCqWithSgid;
  if (settings.rnr_retry != 0) all.device_caps |= abi::kEfaCapRnrRetry;
  if (settings.rdma_write != 0) all.device_caps |= abi::kEfaCapRdmaWrite;
  if (has_unsolicited(device_of(context))) all.device_caps |= abi::kEfaCapUnsolicitedWriteRecv;
  all.max_rdma_size = static_cast<uint32_t>(settings.max_rdma_bytes);
  std::memcpy(attr, &all, std::min<size_t>(bytes, sizeof(all)));
  return 0;
}

EXPORT abi::CqEx* efadv_create_cq(abi::Context* context, abi::CqInitAttrEx* attr, abi::EfaCqInitAttr* efa,
                                  uint32_t bytes) {
  Nic& nic = *device_of(context).nic;
  const std::lock_guard lock(nic.mutex);
  if (nic.refuses("create_cq")) return nullptr;
  uint64_t known = abi::kEfaWcWithSgid;
  if (has_unsolicited(device_of(context))) known |= abi::kEfaWcWithIsUnsolicited;
  const bool is_bad = bytes != sizeof(*efa) || attr->cqe == 0 || attr->cqe > nic.settings.max_cqe;
  if (is_bad || (attr->wc_flags & ~abi::kWcStandardFlags) != 0 || (efa->wc_flags & ~known) != 0) {
    errno = is_bad ? EINVAL : EOPNOTSUPP;
    return nullptr;
  }
  auto* cq = new FakeCq;
  cq->nic = &nic;
  cq->most = attr->cqe;
  cq->ex.base.context = context;
  cq->ex.base.cqe = static_cast<int>(attr->cqe);
  cq->batch.reserve(kPollBatch);
  fill_polling(cq->ex);
  ++nic.counts["cq"];
  return &cq->ex;
}

EXPORT abi::Qp* efadv_create_qp_ex(abi::Context* context, abi::QpInitAttrEx* attr, abi::EfaQpInitAttr* efa,
                                   uint32_t bytes) {
  FakeDevice& device = device_of(context);
  Nic& nic = *device.nic;
  const std::lock_guard lock(nic.mutex);
  if (nic.refuses("create_qp")) return nullptr;
  errno = refusal_of(device, *attr, *efa, bytes);
  if (errno == 0 && nic.counts["qp"] >= static_cast<int64_t>(nic.settings.max_qp)) errno = ENOMEM;
  if (errno != 0) return nullptr;
  auto* qp = new FakeQp;
  qp->device = &device;
  qp->pd = reinterpret_cast<FakePd*>(attr->pd);
  qp->send_cq = reinterpret_cast<FakeCq*>(attr->send_cq);
  qp->recv_cq = reinterpret_cast<FakeCq*>(attr->recv_cq);
  qp->cap = attr->cap;
  qp->is_unsolicited = efa->flags != 0;
  qp->signals_all = attr->sq_sig_all != 0;
  qp->ex.qp_base.context = context;
  qp->ex.qp_base.qp_num = device.next_qp++;
  qp->ex.qp_base.state = abi::kQpReset;
  qp->ex.qp_base.qp_type = abi::kQpDriver;
  fill_requests(qp->ex);
  device.qps[qp->ex.qp_base.qp_num] = qp;
  ++qp->pd->users;
  ++qp->send_cq->users;
  ++qp->recv_cq->users;
  ++nic.counts["qp"];
  return &qp->ex.qp_base;
}

EXPORT int efadv_query_ah(abi::Ah* ah, abi::EfaAhAttr* attr, uint32_t bytes) {
  if (bytes < sizeof(*attr)) return EINVAL;
  *attr = {};
  attr->ahn = reinterpret_cast<FakeAh*>(ah)->number;
  return 0;
}

// Of the fake itself: null when all was taken, else what is wrong with the text.
EXPORT const char* fake_verbs_set(const char* text) {
  static std::string problem;
  Nic& nic = Nic::get();
  const std::lock_guard lock(nic.mutex);
  problem = apply_settings(text, nic.settings);
  nic.settings_changed();
  return problem.empty() ? nullptr : problem.c_str();
}

EXPORT int64_t fake_verbs_count(const char* name) {
  Nic& nic = Nic::get();
  const std::lock_guard lock(nic.mutex);
  return nic.counts[name];
}

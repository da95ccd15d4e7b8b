// The functions of libibverbs.so.1 that Tilewire calls, as an EFA device answers them; see roce_calls.h for the other one.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fake_verbs/exports.h"
#include "fake_verbs/nic.h"
#include "fake_verbs/roce_calls.h"

using namespace tilewire::fake_verbs;

namespace {

FakeDevice& device_of(abi::Context* context) { return *reinterpret_cast<FakeContext*>(context)->device; }

template <class T>
T* refuse(int error) {
  errno = error;
  return nullptr;
}

// Takes back what a call has handed out, unless something still uses it.
template <class T>
int give_back(Nic& nic, const char* kind, T* object, int users) {
  if (users > 0) {
    ++nic.counts["freed_too_early"];
    return EBUSY;
  }
  --nic.counts[kind];
  delete object;
  return 0;
}

int post_send(abi::Qp*, abi::SendWr* wr, abi::SendWr** bad) {
  *bad = wr;  // sends alone go this way, and Tilewire has none
  return EINVAL;
}

int post_recv(abi::Qp* base, abi::RecvWr* wr, abi::RecvWr** bad) {
  FakeQp& qp = *reinterpret_cast<FakeQp*>(base);
  Nic& nic = *qp.device->nic;
  const std::lock_guard lock(nic.mutex);
  if (nic.refuses("post_recv")) return errno;
  for (; wr != nullptr; wr = wr->next) {
    if (wr->num_sge == 0) continue;  // as libefa: the device gets nothing, and nobody is told
    if (qp.receives.size() < qp.cap.max_recv_wr && wr->num_sge <= 1) {
      qp.receives.push(wr->wr_id);
      continue;
    }
    *bad = wr;
    return wr->num_sge > 1 ? EINVAL : ENOMEM;
  }
  return 0;
}

// The masks that an EFA device takes, and no others.
bool is_right_efa_step(const FakeQp& qp, const abi::QpAttr& attr, int mask, bool has_rnr_retry) {
  const abi::QpState now = qp.ex.qp_base.state;
  switch (attr.qp_state) {
    case abi::kQpInit:
      return now == abi::kQpReset && mask == (abi::kMaskState | abi::kMaskPkeyIndex | abi::kMaskPort | abi::kMaskQkey);
    case abi::kQpRtr: return now == abi::kQpInit && mask == abi::kMaskState;
    case abi::kQpRts: {
      const int needed = abi::kMaskState | abi::kMaskSqPsn;
      return now == abi::kQpRtr && (mask == needed || (has_rnr_retry && mask == (needed | abi::kMaskRnrRetry)));
    }
    default: return false;
  }
}

}  // namespace

EXPORT abi::Device** ibv_get_device_list(int* count) {
  Nic& nic = Nic::get();
  const std::lock_guard lock(nic.mutex);
  if (nic.refuses("get_device_list")) return nullptr;
  auto** list = new abi::Device*[nic.devices.size() + 1]();
  uint64_t efa = 0, roce = 0;
  for (const auto& device : nic.devices) {
    const bool is_there = device->is_roce ? roce < nic.settings.roce : efa < nic.settings.devices;
    if (is_there) list[efa + roce] = reinterpret_cast<abi::Device*>(device.get());
    (device->is_roce ? roce : efa) += is_there ? 1 : 0;
  }
  if (count != nullptr) *count = static_cast<int>(efa + roce);
  ++nic.counts["list"];
  return list;
}

EXPORT void ibv_free_device_list(abi::Device** list) {
  Nic& nic = Nic::get();
  const std::lock_guard lock(nic.mutex);
  --nic.counts["list"];
  delete[] list;
}

EXPORT const char* ibv_get_device_name(abi::Device* device) {
  return reinterpret_cast<FakeDevice*>(device)->name.c_str();
}

EXPORT abi::Context* ibv_open_device(abi::Device* handle) {
  auto* device = reinterpret_cast<FakeDevice*>(handle);
  Nic& nic = *device->nic;
  const std::lock_guard lock(nic.mutex);
  if (nic.refuses("open_device")) return nullptr;
  auto* context = new FakeContext;
  context->device = device;
  context->base.device = handle;
  context->base.ops.post_send = post_send;
  context->base.ops.post_recv = post_recv;
  if (device->is_roce) fill_roce_calls(context->base.ops);
  nic.open(*device);
  ++nic.counts["context"];
  return &context->base;
}

EXPORT int ibv_close_device(abi::Context* context) {
  Nic& nic = *device_of(context).nic;
  const std::lock_guard lock(nic.mutex);
  return give_back(nic, "context", reinterpret_cast<FakeContext*>(context), 0);
}

EXPORT int ibv_query_device(abi::Context* context, abi::DeviceAttr* attr) {
  Nic& nic = *device_of(context).nic;
  const std::lock_guard lock(nic.mutex);
  *attr = {};
  std::strcpy(attr->fw_ver, "1.2.3 of a fake");
  attr->max_qp = static_cast<int>(nic.settings.max_qp);
  attr->max_qp_wr = static_cast<int>(nic.settings.max_sq_wr);
  attr->max_cqe = static_cast<int>(nic.settings.max_cqe);
  attr->max_cq = static_cast<int>(nic.settings.max_cq);
  attr->max_mr = static_cast<int>(nic.settings.max_mr);
  attr->max_pd = static_cast<int>(nic.settings.max_pd);
  attr->max_ah = static_cast<int>(nic.settings.max_ah);
  attr->max_sge = 2;
  attr->max_sge_rd = 1;
  attr->phys_port_cnt = 1;
  return 0;
}

EXPORT int ibv_query_port(abi::Context* context, uint8_t, abi::PortAttr* attr) {
  Nic& nic = *device_of(context).nic;
  const std::lock_guard lock(nic.mutex);
  *attr = {};
  attr->state = nic.settings.active != 0 ? abi::kPortActive : abi::kPortDown;
  attr->max_mtu = attr->active_mtu = abi::kMtu4096;
  const bool is_roce = device_of(context).is_roce;
  attr->max_msg_sz = is_roce ? static_cast<uint32_t>(nic.settings.max_rdma_bytes) : 8192;  // EFA: of sends
  attr->gid_tbl_len = nic.settings.gids != 0 ? 1 : 0;
  attr->link_layer = is_roce ? abi::kLinkEthernet : abi::kLinkUnspecified;
  return 0;
}

EXPORT int ibv_query_gid(abi::Context* context, uint8_t, int index, abi::Gid* gid) {
  FakeDevice& device = device_of(context);
  const std::lock_guard lock(device.nic->mutex);
  if (index != 0 || device.nic->settings.gids == 0) return -1;
  *gid = device.gid;
  return 0;
}

// Its name in the library begins as names of programs must not.
EXPORT int query_gid_entry(abi::Context*, uint32_t, uint32_t, abi::GidEntry*, uint32_t,
                           size_t) asm("_ibv_query_gid_ex");
int query_gid_entry(abi::Context* context, uint32_t port, uint32_t index, abi::GidEntry* entry, uint32_t, size_t) {
  const bool is_roce = device_of(context).is_roce;
  *entry = {};
  entry->gid_index = index;
  entry->port_num = port;
  entry->gid_type = is_roce ? abi::kGidRoceV2 : abi::kGidInfiniband;
  return ibv_query_gid(context, static_cast<uint8_t>(port), static_cast<int>(index), &entry->gid) == 0 ? 0 : ENODATA;
}

EXPORT abi::Pd* ibv_alloc_pd(abi::Context* context) {
  Nic& nic = *device_of(context).nic;
  const std::lock_guard lock(nic.mutex);
  if (nic.refuses("alloc_pd")) return nullptr;
  auto* pd = new FakePd;
  pd->device = &device_of(context);
  pd->base.context = context;
  ++nic.counts["pd"];
  return &pd->base;
}

EXPORT int ibv_dealloc_pd(abi::Pd* base) {
  auto* pd = reinterpret_cast<FakePd*>(base);
  Nic& nic = *pd->device->nic;
  const std::lock_guard lock(nic.mutex);
  return give_back(nic, "pd", pd, pd->users);
}

EXPORT abi::Mr* ibv_reg_mr(abi::Pd* base, void* begin, size_t bytes, int access) {
  auto* pd = reinterpret_cast<FakePd*>(base);
  Nic& nic = *pd->device->nic;
  const std::lock_guard lock(nic.mutex);
  if (nic.refuses("reg_mr")) return nullptr;
  auto* mr = new FakeMr;
  mr->pd = pd;
  mr->access = access;
  mr->base.context = base->context;
  mr->base.pd = base;
  mr->base.addr = begin;
  mr->base.length = bytes;
  mr->base.lkey = mr->base.rkey = pd->device->next_key++;
  pd->device->memory[mr->base.rkey] = mr;
  ++pd->users;
  ++nic.counts["mr"];
  return &mr->base;
}

EXPORT int ibv_dereg_mr(abi::Mr* base) {
  auto* mr = reinterpret_cast<FakeMr*>(base);
  Nic& nic = *mr->pd->device->nic;
  const std::lock_guard lock(nic.mutex);
  mr->pd->device->memory.erase(base->rkey);
  --mr->pd->users;
  return give_back(nic, "mr", mr, 0);
}

// EFA has them for sends alone.
EXPORT abi::Cq* ibv_create_cq(abi::Context* context, int entries, void*, abi::Channel*, int) {
  FakeDevice& device = device_of(context);
  const std::lock_guard lock(device.nic->mutex);
  return device.is_roce ? create_roce_cq(context, device, entries) : refuse<abi::Cq>(EOPNOTSUPP);
}

EXPORT int ibv_destroy_cq(abi::Cq* base) {
  auto* cq = reinterpret_cast<FakeCq*>(base);
  Nic& nic = *cq->nic;
  const std::lock_guard lock(nic.mutex);
  if (cq->users == 0) nic.forget(cq);
  return give_back(nic, "cq", cq, cq->users);
}

EXPORT abi::Qp* ibv_create_qp(abi::Pd* base, abi::QpInitAttr* attr) {
  auto* pd = reinterpret_cast<FakePd*>(base);
  const std::lock_guard lock(pd->device->nic->mutex);
  return pd->device->is_roce ? create_rc_qp(*pd, *attr) : refuse<abi::Qp>(EOPNOTSUPP);
}

EXPORT int ibv_modify_qp(abi::Qp* base, abi::QpAttr* attr, int mask) {
  auto* qp = reinterpret_cast<FakeQp*>(base);
  Nic& nic = *qp->device->nic;
  const std::lock_guard lock(nic.mutex);
  if (nic.refuses("modify_qp")) return errno;
  if (qp->is_rc ? !is_right_rc_step(*qp, *attr, mask)
                : !is_right_efa_step(*qp, *attr, mask, nic.settings.rnr_retry != 0)) {
    return EINVAL;
  }
  if (attr->qp_state == abi::kQpInit) qp->qkey = attr->qkey;
  if (mask & abi::kMaskAv) qp->peer = attr->ah_attr.grh.dgid;
  if (mask & abi::kMaskDestQpn) qp->peer_number = attr->dest_qp_num;
  if (mask & abi::kMaskRnrRetry) qp->rnr_retry = attr->rnr_retry;
  base->state = attr->qp_state;
  return 0;
}

EXPORT int ibv_destroy_qp(abi::Qp* base) {
  auto* qp = reinterpret_cast<FakeQp*>(base);
  Nic& nic = *qp->device->nic;
  for (const FakeCq* cq : {qp->send_cq, qp->recv_cq}) {
    if (!cq->is_polled) continue;
    std::fprintf(stderr,
                 "fake verbs: a queue pair is destroyed while its completions are polled: libefa waits for ever\n");
    std::abort();
  }
  const std::lock_guard lock(nic.mutex);
  nic.forget(qp);
  qp->device->qps.erase(base->qp_num);
  --qp->pd->users;
  --qp->send_cq->users;
  --qp->recv_cq->users;
  return give_back(nic, "qp", qp, 0);
}

EXPORT abi::QpEx* ibv_qp_to_qp_ex(abi::Qp* base) { return reinterpret_cast<abi::QpEx*>(base); }

EXPORT abi::Ah* ibv_create_ah(abi::Pd* base, abi::AhAttr* attr) {
  auto* pd = reinterpret_cast<FakePd*>(base);
  FakeDevice& device = *pd->device;
  Nic& nic = *device.nic;
  const std::lock_guard lock(nic.mutex);
  if (nic.refuses("create_ah")) return nullptr;
  if (attr->is_global == 0 || attr->port_num != 1) return refuse<abi::Ah>(EINVAL);
  if (nic.counts["ah"] >= static_cast<int64_t>(nic.settings.max_ah)) return refuse<abi::Ah>(ENOMEM);
  auto* ah = new FakeAh;
  ah->pd = pd;
  ah->gid = attr->grh.dgid;
  // One number for each GID, given out in no order.
  const auto next = static_cast<uint16_t>(device.ah_numbers.size() * 7 + 3);
  ah->number = device.ah_numbers.try_emplace(ah->gid, next).first->second;
  ah->base.context = base->context;
  ah->base.pd = base;
  ++pd->known[ah->gid];
  ++pd->users;
  ++nic.counts["ah"];
  return &ah->base;
}

EXPORT int ibv_destroy_ah(abi::Ah* base) {
  auto* ah = reinterpret_cast<FakeAh*>(base);
  Nic& nic = *ah->pd->device->nic;
  const std::lock_guard lock(nic.mutex);
  if (--ah->pd->known[ah->gid] == 0) ah->pd->known.erase(ah->gid);
  --ah->pd->users;
  return give_back(nic, "ah", ah, 0);
}

EXPORT const char* ibv_wc_status_str(abi::WcStatus status) {
  switch (status) {
    case abi::kWcSuccess: return "success";
    case abi::kWcLocProtErr: return "local protection error";
    case abi::kWcWrFlushErr: return "Work Request Flushed Error";
    case abi::kWcRemInvReqErr: return "remote invalid request error";
    case abi::kWcRemAccessErr: return "remote access error";
    case abi::kWcRemOpErr: return "remote operation error";
    case abi::kWcRetryExcErr: return "transport retry counter exceeded";
    case abi::kWcRnrRetryExcErr: return "RNR retry counter exceeded";
    case abi::kWcRemInvRdReqErr: return "remote invalid RD request";
    case abi::kWcRemAbortErr: return "aborted error";
    case abi::kWcRespTimeoutErr: return "response timeout error";
    default: return "general error";
  }
}

// Our own declarations against those of the distribution's rdma-core, where its headers are installed. A difference does
// not compile.
#include "transport/verbs/efa_abi.h"

#include <gtest/gtest.h>

#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>
#if __has_include(<infiniband/efadv.h>)
#include <infiniband/efadv.h>
#define TILEWIRE_HAS_EFADV 1
#endif

#include <type_traits>

namespace tilewire::verbs {
namespace {

#define SAME_SIZE(ours, theirs) \
  static_assert(sizeof(abi::ours) == sizeof(theirs) && alignof(abi::ours) == alignof(theirs))
#define SAME_FIELD(ours, our_field, theirs, their_field)                           \
  static_assert(offsetof(abi::ours, our_field) == offsetof(theirs, their_field) && \
                sizeof(std::declval<abi::ours&>().our_field) == sizeof(std::declval<theirs&>().their_field))
#define SAME_NAMED(ours, theirs, field) SAME_FIELD(ours, field, theirs, field)
#define SAME_NUMBER(ours, theirs) static_assert(static_cast<long long>(abi::ours) == static_cast<long long>(theirs))

static_assert(sizeof(abi::Gid) == sizeof(ibv_gid));

SAME_SIZE(DeviceAttr, ibv_device_attr);
SAME_NAMED(DeviceAttr, ibv_device_attr, fw_ver);
SAME_NAMED(DeviceAttr, ibv_device_attr, max_mr_size);
SAME_NAMED(DeviceAttr, ibv_device_attr, vendor_id);
SAME_NAMED(DeviceAttr, ibv_device_attr, max_qp);
SAME_NAMED(DeviceAttr, ibv_device_attr, max_qp_wr);
SAME_NAMED(DeviceAttr, ibv_device_attr, max_sge);
SAME_NAMED(DeviceAttr, ibv_device_attr, max_cq);
SAME_NAMED(DeviceAttr, ibv_device_attr, max_cqe);
SAME_NAMED(DeviceAttr, ibv_device_attr, max_mr);
SAME_NAMED(DeviceAttr, ibv_device_attr, max_pd);
SAME_NAMED(DeviceAttr, ibv_device_attr, max_ah);
SAME_NAMED(DeviceAttr, ibv_device_attr, max_pkeys);
SAME_NAMED(DeviceAttr, ibv_device_attr, phys_port_cnt);

SAME_SIZE(PortAttr, ibv_port_attr);
SAME_NAMED(PortAttr, ibv_port_attr, state);
SAME_NAMED(PortAttr, ibv_port_attr, active_mtu);
SAME_NAMED(PortAttr, ibv_port_attr, gid_tbl_len);
SAME_NAMED(PortAttr, ibv_port_attr, max_msg_sz);
SAME_NAMED(PortAttr, ibv_port_attr, lid);
SAME_NAMED(PortAttr, ibv_port_attr, link_layer);

SAME_SIZE(GidEntry, ibv_gid_entry);
SAME_NAMED(GidEntry, ibv_gid_entry, gid);
SAME_NAMED(GidEntry, ibv_gid_entry, gid_index);
SAME_NAMED(GidEntry, ibv_gid_entry, gid_type);

SAME_SIZE(AsyncEvent, ibv_async_event);
SAME_FIELD(AsyncEvent, element.port, ibv_async_event, element.port_num);
SAME_FIELD(AsyncEvent, type, ibv_async_event, event_type);
SAME_NUMBER(kEventCqError, IBV_EVENT_CQ_ERR);
SAME_NUMBER(kEventDeviceFatal, IBV_EVENT_DEVICE_FATAL);
SAME_NUMBER(kEventPortActive, IBV_EVENT_PORT_ACTIVE);
SAME_NUMBER(kEventPortError, IBV_EVENT_PORT_ERR);
SAME_NAMED(Context, ibv_context, async_fd);

SAME_SIZE(Pd, ibv_pd);
SAME_SIZE(Mr, ibv_mr);
SAME_NAMED(Mr, ibv_mr, lkey);
SAME_NAMED(Mr, ibv_mr, rkey);
SAME_SIZE(Cq, ibv_cq);
SAME_NAMED(Cq, ibv_cq, context);
SAME_NAMED(Cq, ibv_cq, cqe);
SAME_SIZE(Qp, ibv_qp);
SAME_NAMED(Qp, ibv_qp, context);
SAME_NAMED(Qp, ibv_qp, qp_num);
SAME_SIZE(Ah, ibv_ah);

SAME_SIZE(QpCap, ibv_qp_cap);
SAME_NAMED(QpCap, ibv_qp_cap, max_send_wr);
SAME_NAMED(QpCap, ibv_qp_cap, max_recv_wr);
SAME_NAMED(QpCap, ibv_qp_cap, max_send_sge);
SAME_NAMED(QpCap, ibv_qp_cap, max_recv_sge);
SAME_NAMED(QpCap, ibv_qp_cap, max_inline_data);
SAME_SIZE(QpInitAttr, ibv_qp_init_attr);
SAME_NAMED(QpInitAttr, ibv_qp_init_attr, send_cq);
SAME_NAMED(QpInitAttr, ibv_qp_init_attr, recv_cq);
SAME_NAMED(QpInitAttr, ibv_qp_init_attr, cap);
SAME_NAMED(QpInitAttr, ibv_qp_init_attr, qp_type);
SAME_NAMED(QpInitAttr, ibv_qp_init_attr, sq_sig_all);

SAME_SIZE(GlobalRoute, ibv_global_route);
SAME_NAMED(GlobalRoute, ibv_global_route, dgid);
SAME_NAMED(GlobalRoute, ibv_global_route, flow_label);
SAME_NAMED(GlobalRoute, ibv_global_route, sgid_index);
SAME_NAMED(GlobalRoute, ibv_global_route, hop_limit);
SAME_NAMED(GlobalRoute, ibv_global_route, traffic_class);
SAME_SIZE(AhAttr, ibv_ah_attr);
SAME_NAMED(AhAttr, ibv_ah_attr, dlid);
SAME_NAMED(AhAttr, ibv_ah_attr, sl);
SAME_NAMED(AhAttr, ibv_ah_attr, is_global);
SAME_NAMED(AhAttr, ibv_ah_attr, port_num);
SAME_SIZE(QpAttr, ibv_qp_attr);
SAME_NAMED(QpAttr, ibv_qp_attr, qp_state);
SAME_NAMED(QpAttr, ibv_qp_attr, path_mtu);
SAME_NAMED(QpAttr, ibv_qp_attr, rq_psn);
SAME_NAMED(QpAttr, ibv_qp_attr, sq_psn);
SAME_NAMED(QpAttr, ibv_qp_attr, dest_qp_num);
SAME_NAMED(QpAttr, ibv_qp_attr, qp_access_flags);
SAME_NAMED(QpAttr, ibv_qp_attr, ah_attr);
SAME_NAMED(QpAttr, ibv_qp_attr, pkey_index);
SAME_NAMED(QpAttr, ibv_qp_attr, max_rd_atomic);
SAME_NAMED(QpAttr, ibv_qp_attr, max_dest_rd_atomic);
SAME_NAMED(QpAttr, ibv_qp_attr, min_rnr_timer);
SAME_NAMED(QpAttr, ibv_qp_attr, port_num);
SAME_NAMED(QpAttr, ibv_qp_attr, timeout);
SAME_NAMED(QpAttr, ibv_qp_attr, retry_cnt);
SAME_NAMED(QpAttr, ibv_qp_attr, rnr_retry);

SAME_SIZE(Sge, ibv_sge);
SAME_NAMED(Sge, ibv_sge, addr);
SAME_NAMED(Sge, ibv_sge, length);
SAME_NAMED(Sge, ibv_sge, lkey);
SAME_SIZE(SendWr, ibv_send_wr);
SAME_NAMED(SendWr, ibv_send_wr, wr_id);
SAME_NAMED(SendWr, ibv_send_wr, next);
SAME_NAMED(SendWr, ibv_send_wr, sg_list);
SAME_NAMED(SendWr, ibv_send_wr, num_sge);
SAME_NAMED(SendWr, ibv_send_wr, opcode);
SAME_NAMED(SendWr, ibv_send_wr, send_flags);
SAME_NAMED(SendWr, ibv_send_wr, imm_data);
SAME_FIELD(SendWr, remote_addr, ibv_send_wr, wr.rdma.remote_addr);
SAME_FIELD(SendWr, rkey, ibv_send_wr, wr.rdma.rkey);
SAME_SIZE(RecvWr, ibv_recv_wr);
SAME_NAMED(RecvWr, ibv_recv_wr, wr_id);
SAME_NAMED(RecvWr, ibv_recv_wr, next);
SAME_NAMED(RecvWr, ibv_recv_wr, num_sge);
SAME_SIZE(Wc, ibv_wc);
SAME_NAMED(Wc, ibv_wc, wr_id);
SAME_NAMED(Wc, ibv_wc, status);
SAME_NAMED(Wc, ibv_wc, opcode);
SAME_NAMED(Wc, ibv_wc, vendor_err);
SAME_NAMED(Wc, ibv_wc, imm_data);
SAME_NAMED(Wc, ibv_wc, qp_num);
SAME_SIZE(ContextOps, ibv_context_ops);
SAME_NAMED(ContextOps, ibv_context_ops, poll_cq);
SAME_NAMED(ContextOps, ibv_context_ops, post_send);
SAME_NAMED(ContextOps, ibv_context_ops, post_recv);
SAME_SIZE(Context, ibv_context);
SAME_NAMED(Context, ibv_context, ops);
SAME_NAMED(Context, ibv_context, async_fd);

SAME_SIZE(QpInitAttrEx, ibv_qp_init_attr_ex);
SAME_NAMED(QpInitAttrEx, ibv_qp_init_attr_ex, send_cq);
SAME_NAMED(QpInitAttrEx, ibv_qp_init_attr_ex, recv_cq);
SAME_NAMED(QpInitAttrEx, ibv_qp_init_attr_ex, cap);
SAME_NAMED(QpInitAttrEx, ibv_qp_init_attr_ex, qp_type);
SAME_NAMED(QpInitAttrEx, ibv_qp_init_attr_ex, comp_mask);
SAME_NAMED(QpInitAttrEx, ibv_qp_init_attr_ex, pd);
SAME_NAMED(QpInitAttrEx, ibv_qp_init_attr_ex, send_ops_flags);
static_assert(sizeof(abi::QpEx) <= sizeof(ibv_qp_ex));  // members are added at its end
SAME_NAMED(QpEx, ibv_qp_ex, wr_id);
SAME_NAMED(QpEx, ibv_qp_ex, wr_flags);
SAME_NAMED(QpEx, ibv_qp_ex, wr_rdma_write);
SAME_NAMED(QpEx, ibv_qp_ex, wr_rdma_write_imm);
SAME_NAMED(QpEx, ibv_qp_ex, wr_set_ud_addr);
SAME_NAMED(QpEx, ibv_qp_ex, wr_set_inline_data);
SAME_NAMED(QpEx, ibv_qp_ex, wr_set_sge);
SAME_NAMED(QpEx, ibv_qp_ex, wr_set_sge_list);
SAME_NAMED(QpEx, ibv_qp_ex, wr_start);
SAME_NAMED(QpEx, ibv_qp_ex, wr_complete);
SAME_NAMED(QpEx, ibv_qp_ex, wr_abort);
SAME_SIZE(CqInitAttrEx, ibv_cq_init_attr_ex);
SAME_NAMED(CqInitAttrEx, ibv_cq_init_attr_ex, cqe);
SAME_NAMED(CqInitAttrEx, ibv_cq_init_attr_ex, wc_flags);
SAME_NAMED(CqInitAttrEx, ibv_cq_init_attr_ex, comp_mask);
SAME_SIZE(PollCqAttr, ibv_poll_cq_attr);
static_assert(sizeof(abi::CqEx) <= sizeof(ibv_cq_ex));
SAME_NAMED(CqEx, ibv_cq_ex, status);
SAME_NAMED(CqEx, ibv_cq_ex, wr_id);
SAME_NAMED(CqEx, ibv_cq_ex, start_poll);
SAME_NAMED(CqEx, ibv_cq_ex, next_poll);
SAME_NAMED(CqEx, ibv_cq_ex, end_poll);
SAME_NAMED(CqEx, ibv_cq_ex, read_opcode);
SAME_NAMED(CqEx, ibv_cq_ex, read_vendor_err);
SAME_NAMED(CqEx, ibv_cq_ex, read_imm_data);
SAME_NAMED(CqEx, ibv_cq_ex, read_qp_num);
SAME_NAMED(CqEx, ibv_cq_ex, read_src_qp);
SAME_NAMED(CqEx, ibv_cq_ex, read_slid);
SAME_NUMBER(kInitAttrPd, IBV_QP_INIT_ATTR_PD);
SAME_NUMBER(kInitAttrSendOps, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
SAME_NUMBER(kSendOpsRdmaWrite, IBV_QP_EX_WITH_RDMA_WRITE);
SAME_NUMBER(kSendOpsRdmaWriteWithImm, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM);
SAME_NUMBER(kWcStandardFlags, IBV_WC_STANDARD_FLAGS);

#ifdef TILEWIRE_HAS_EFADV
// Distributions have old ones: what has come since lies in what is reserved there, or behind the end.
SAME_SIZE(EfaDeviceAttr, efadv_device_attr);
SAME_NAMED(EfaDeviceAttr, efadv_device_attr, max_sq_wr);
SAME_NAMED(EfaDeviceAttr, efadv_device_attr, max_rq_wr);
SAME_NAMED(EfaDeviceAttr, efadv_device_attr, device_caps);
SAME_NAMED(EfaDeviceAttr, efadv_device_attr, max_rdma_size);
static_assert(sizeof(abi::EfaQpInitAttr) <= sizeof(efadv_qp_init_attr));
SAME_NAMED(EfaQpInitAttr, efadv_qp_init_attr, driver_qp_type);
SAME_NUMBER(kEfaSrd, EFADV_QP_DRIVER_TYPE_SRD);
SAME_NUMBER(kEfaCapRdmaRead, EFADV_DEVICE_ATTR_CAPS_RDMA_READ);
SAME_NUMBER(kEfaCapRnrRetry, EFADV_DEVICE_ATTR_CAPS_RNR_RETRY);
SAME_NAMED(EfaCqInitAttr, efadv_cq_init_attr, wc_flags);
SAME_NAMED(EfaAhAttr, efadv_ah_attr, ahn);
#endif

SAME_NUMBER(kPortDown, IBV_PORT_DOWN);
SAME_NUMBER(kPortActive, IBV_PORT_ACTIVE);
SAME_NUMBER(kLinkInfiniband, IBV_LINK_LAYER_INFINIBAND);
SAME_NUMBER(kLinkEthernet, IBV_LINK_LAYER_ETHERNET);
SAME_NUMBER(kGidInfiniband, IBV_GID_TYPE_IB);
SAME_NUMBER(kGidRoceV1, IBV_GID_TYPE_ROCE_V1);
SAME_NUMBER(kGidRoceV2, IBV_GID_TYPE_ROCE_V2);
SAME_NUMBER(kMtu256, IBV_MTU_256);
SAME_NUMBER(kMtu4096, IBV_MTU_4096);
SAME_NUMBER(kQpRc, IBV_QPT_RC);
SAME_NUMBER(kQpInit, IBV_QPS_INIT);
SAME_NUMBER(kQpRtr, IBV_QPS_RTR);
SAME_NUMBER(kQpRts, IBV_QPS_RTS);
SAME_NUMBER(kAccessLocalWrite, IBV_ACCESS_LOCAL_WRITE);
SAME_NUMBER(kAccessRemoteWrite, IBV_ACCESS_REMOTE_WRITE);
SAME_NUMBER(kAccessRelaxedOrdering, IBV_ACCESS_RELAXED_ORDERING);
SAME_NUMBER(kMaskState, IBV_QP_STATE);
SAME_NUMBER(kMaskAccessFlags, IBV_QP_ACCESS_FLAGS);
SAME_NUMBER(kMaskPkeyIndex, IBV_QP_PKEY_INDEX);
SAME_NUMBER(kMaskPort, IBV_QP_PORT);
SAME_NUMBER(kMaskAv, IBV_QP_AV);
SAME_NUMBER(kMaskPathMtu, IBV_QP_PATH_MTU);
SAME_NUMBER(kMaskTimeout, IBV_QP_TIMEOUT);
SAME_NUMBER(kMaskRetryCnt, IBV_QP_RETRY_CNT);
SAME_NUMBER(kMaskRnrRetry, IBV_QP_RNR_RETRY);
SAME_NUMBER(kMaskRqPsn, IBV_QP_RQ_PSN);
SAME_NUMBER(kMaskMaxRdAtomic, IBV_QP_MAX_QP_RD_ATOMIC);
SAME_NUMBER(kMaskMinRnrTimer, IBV_QP_MIN_RNR_TIMER);
SAME_NUMBER(kMaskSqPsn, IBV_QP_SQ_PSN);
SAME_NUMBER(kMaskMaxDestRdAtomic, IBV_QP_MAX_DEST_RD_ATOMIC);
SAME_NUMBER(kMaskDestQpn, IBV_QP_DEST_QPN);
SAME_NUMBER(kWrRdmaWrite, IBV_WR_RDMA_WRITE);
SAME_NUMBER(kWrRdmaWriteWithImm, IBV_WR_RDMA_WRITE_WITH_IMM);
SAME_NUMBER(kSendSignaled, IBV_SEND_SIGNALED);
SAME_NUMBER(kSendInline, IBV_SEND_INLINE);
SAME_NUMBER(kWcRdmaWrite, IBV_WC_RDMA_WRITE);
SAME_NUMBER(kWcRecvRdmaWithImm, IBV_WC_RECV_RDMA_WITH_IMM);
SAME_NUMBER(kWcLocQpOpErr, IBV_WC_LOC_QP_OP_ERR);
SAME_NUMBER(kWcLocProtErr, IBV_WC_LOC_PROT_ERR);
SAME_NUMBER(kWcWrFlushErr, IBV_WC_WR_FLUSH_ERR);
SAME_NUMBER(kWcRemInvReqErr, IBV_WC_REM_INV_REQ_ERR);
SAME_NUMBER(kWcRemAccessErr, IBV_WC_REM_ACCESS_ERR);
SAME_NUMBER(kWcRemOpErr, IBV_WC_REM_OP_ERR);
SAME_NUMBER(kWcRetryExcErr, IBV_WC_RETRY_EXC_ERR);
SAME_NUMBER(kWcRnrRetryExcErr, IBV_WC_RNR_RETRY_EXC_ERR);
SAME_NUMBER(kWcLocLenErr, IBV_WC_LOC_LEN_ERR);
SAME_NUMBER(kWcRemInvRdReqErr, IBV_WC_REM_INV_RD_REQ_ERR);
SAME_NUMBER(kWcRemAbortErr, IBV_WC_REM_ABORT_ERR);
SAME_NUMBER(kWcRespTimeoutErr, IBV_WC_RESP_TIMEOUT_ERR);
SAME_NUMBER(kWcGeneralErr, IBV_WC_GENERAL_ERR);
SAME_NUMBER(kQpDriver, IBV_QPT_DRIVER);
SAME_NUMBER(kMaskQkey, IBV_QP_QKEY);

TEST(VerbsAbi, IsThatOfTheInstalledHeaders) { SUCCEED(); }

}  // namespace
}  // namespace tilewire::verbs
#else
TEST(VerbsAbi, IsThatOfTheInstalledHeaders) { GTEST_SKIP() << "libibverbs-dev is not installed"; }
#endif

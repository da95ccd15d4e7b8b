// What EFA needs of the binary interface beyond abi.h: the extended queue pairs and completion queues of libibverbs, and
// libefa's own calls. Distributions have libefa of years ago in their headers, so the structures are as they are now and
// their length goes with each call: an old library takes what it knows and refuses what is not zero beyond that.
//
// Names are those of infiniband/verbs.h and infiniband/efadv.h without their prefixes.
#pragma once

#include "transport/verbs/abi.h"

namespace tilewire::verbs::abi {

struct Xrcd;

enum InitAttrMask : uint32_t { kInitAttrPd = 1u << 0, kInitAttrSendOps = 1u << 6 };
enum SendOps : uint64_t { kSendOpsRdmaWrite = 1u << 0, kSendOpsRdmaWriteWithImm = 1u << 1 };
inline constexpr uint64_t kWcStandardFlags = 0x7f;

struct QpInitAttrEx {
  void* qp_context;
  Cq* send_cq;
  Cq* recv_cq;
  Srq* srq;
  QpCap cap;
  QpType qp_type;
  int sq_sig_all;
  uint32_t comp_mask;  // InitAttrMask
  Pd* pd;
  Xrcd* xrcd;
  uint32_t create_flags;
  uint16_t max_tso_header;
  void* not_used[4];  // for hashing received packets
  uint32_t source_qpn;
  uint64_t send_ops_flags;  // SendOps
};

// Requests are built by calls of its members, between wr_start and wr_complete.
struct QpEx {
  Qp qp_base;
  uint64_t comp_mask;
  uint64_t wr_id;
  unsigned wr_flags;  // SendFlags
  void* not_used_1[5];
  void (*wr_rdma_write)(QpEx* qp, uint32_t rkey, uint64_t remote_addr);
  void (*wr_rdma_write_imm)(QpEx* qp, uint32_t rkey, uint64_t remote_addr, uint32_t imm_data);  // network byte order
  void* not_used_2[4];
  void (*wr_set_ud_addr)(QpEx* qp, Ah* ah, uint32_t remote_qpn, uint32_t remote_qkey);
  void* not_used_3;
  void (*wr_set_inline_data)(QpEx* qp, void* addr, size_t length);
  void* not_used_4;
  void (*wr_set_sge)(QpEx* qp, uint32_t lkey, uint64_t addr, uint32_t length);
  void (*wr_set_sge_list)(QpEx* qp, size_t count, const Sge* list);
  void (*wr_start)(QpEx* qp);
  int (*wr_complete)(QpEx* qp);
  void (*wr_abort)(QpEx* qp);
};

struct CqInitAttrEx {
  uint32_t cqe;
  void* cq_context;
  Channel* channel;
  uint32_t comp_vector;
  uint64_t wc_flags;
  uint32_t comp_mask;
  uint32_t flags;
  void* parent_domain;
};

struct PollCqAttr {
  uint32_t comp_mask;
};

// A completion is looked at in place, between start_poll and end_poll.
struct CqEx {
  Cq base;
  uint32_t comp_mask;
  WcStatus status;
  uint64_t wr_id;
  int (*start_poll)(CqEx* cq, PollCqAttr* attr);  // ENOENT: there is none, and no end_poll
  int (*next_poll)(CqEx* cq);
  void (*end_poll)(CqEx* cq);
  WcOpcode (*read_opcode)(CqEx* cq);
  uint32_t (*read_vendor_err)(CqEx* cq);
  uint32_t (*read_byte_len)(CqEx* cq);
  uint32_t (*read_imm_data)(CqEx* cq);  // network byte order
  uint32_t (*read_qp_num)(CqEx* cq);
  uint32_t (*read_src_qp)(CqEx* cq);
  unsigned (*read_wc_flags)(CqEx* cq);
  uint32_t (*read_slid)(CqEx* cq);  // on EFA the number of the sender's address handle
};

enum EfaDriverQpType : uint32_t { kEfaSrd = 0 };
enum EfaDeviceCaps : uint32_t {
  kEfaCapRdmaRead = 1u << 0,
  kEfaCapRnrRetry = 1u << 1,
  kEfaCapCqWithSgid = 1u << 2,
  kEfaCapRdmaWrite = 1u << 3,
  kEfaCapUnsolicitedWriteRecv = 1u << 4,
};
enum EfaQpFlags : uint16_t { kEfaQpUnsolicitedWriteRecv = 1u << 0 };
enum EfaWcFlags : uint64_t { kEfaWcWithSgid = 1u << 0, kEfaWcWithIsUnsolicited = 1u << 1 };

struct EfaDeviceAttr {
  uint64_t comp_mask;
  uint32_t max_sq_wr;
  uint32_t max_rq_wr;
  uint16_t max_sq_sge;
  uint16_t max_rq_sge;
  uint16_t inline_buf_size;
  uint8_t reserved[2];
  uint32_t device_caps;  // EfaDeviceCaps
  uint32_t max_rdma_size;
};

struct EfaQpInitAttr {
  uint64_t comp_mask;
  uint32_t driver_qp_type;  // EfaDriverQpType
  uint16_t flags;           // EfaQpFlags; older libraries: reserved
  uint8_t sl;
  uint8_t reserved;
};

struct EfaCqInitAttr {
  uint64_t comp_mask;
  uint64_t wc_flags;  // EfaWcFlags
};

struct EfaAhAttr {
  uint64_t comp_mask;
  uint16_t ahn;
  uint8_t reserved[6];
};

}  // namespace tilewire::verbs::abi

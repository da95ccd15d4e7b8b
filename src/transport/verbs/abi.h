// The part of libibverbs' binary interface that Tilewire uses, declared here so that it builds and runs where rdma-core
// is absent. It has been stable since the symbol versions IBVERBS_1.0 and 1.1; abi_test.cc compares every layout and
// number with the distribution's header where that is installed.
//
// Names are those of infiniband/verbs.h without its prefixes. Values in network byte order are marked so.
#pragma once

#include <pthread.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace tilewire::verbs::abi {

struct Device;
struct Context;
struct Channel;
struct Srq;

using Gid = std::array<uint8_t, 16>;

enum PortState : int { kPortNop, kPortDown, kPortInit, kPortArmed, kPortActive };
enum LinkLayer : uint8_t { kLinkUnspecified, kLinkInfiniband, kLinkEthernet };
enum GidType : uint32_t { kGidInfiniband, kGidRoceV1, kGidRoceV2 };
enum Mtu : int { kMtu256 = 1, kMtu512, kMtu1024, kMtu2048, kMtu4096 };
enum QpType : int { kQpRc = 2, kQpDriver = 0xff };
enum QpState : int { kQpReset, kQpInit, kQpRtr, kQpRts };

enum AccessFlags : unsigned {
  kAccessLocalWrite = 1u << 0,
  kAccessRemoteWrite = 1u << 1,
  kAccessRelaxedOrdering = 1u << 20,  // optional: dropped where the kernel does not know it
};

enum QpAttrMask : int {
  kMaskState = 1 << 0,
  kMaskAccessFlags = 1 << 3,
  kMaskPkeyIndex = 1 << 4,
  kMaskPort = 1 << 5,
  kMaskQkey = 1 << 6,
  kMaskAv = 1 << 7,
  kMaskPathMtu = 1 << 8,
  kMaskTimeout = 1 << 9,
  kMaskRetryCnt = 1 << 10,
  kMaskRnrRetry = 1 << 11,
  kMaskRqPsn = 1 << 12,
  kMaskMaxRdAtomic = 1 << 13,
  kMaskMinRnrTimer = 1 << 15,
  kMaskSqPsn = 1 << 16,
  kMaskMaxDestRdAtomic = 1 << 17,
  kMaskDestQpn = 1 << 20,
};

enum WrOpcode : int { kWrRdmaWrite = 0, kWrRdmaWriteWithImm = 1 };
enum SendFlags : unsigned { kSendSignaled = 1u << 1, kSendInline = 1u << 3 };
enum WcOpcode : int { kWcRdmaWrite = 1, kWcRecvRdmaWithImm = (1 << 7) + 1 };
enum WcStatus : int {
  kWcSuccess = 0,
  kWcLocLenErr = 1,
  kWcLocQpOpErr = 2,
  kWcLocProtErr = 4,
  kWcWrFlushErr = 5,
  kWcRemInvReqErr = 9,
  kWcRemAccessErr = 10,
  kWcRemOpErr = 11,
  kWcRetryExcErr = 12,
  kWcRnrRetryExcErr = 13,
  kWcRemInvRdReqErr = 15,
  kWcRemAbortErr = 16,
  kWcRespTimeoutErr = 20,
  kWcGeneralErr = 21,
};

struct DeviceAttr {
  char fw_ver[64];
  uint64_t node_guid;       // network byte order
  uint64_t sys_image_guid;  // network byte order
  uint64_t max_mr_size;
  uint64_t page_size_cap;
  uint32_t vendor_id;
  uint32_t vendor_part_id;
  uint32_t hw_ver;
  int max_qp;
  int max_qp_wr;
  unsigned device_cap_flags;
  int max_sge;
  int max_sge_rd;
  int max_cq;
  int max_cqe;
  int max_mr;
  int max_pd;
  int not_used[14];
  int max_ah;
  int not_used_either[5];
  uint16_t max_pkeys;
  uint8_t local_ca_ack_delay;
  uint8_t phys_port_cnt;
};

struct PortAttr {
  PortState state;
  Mtu max_mtu;
  Mtu active_mtu;
  int gid_tbl_len;
  uint32_t port_cap_flags;
  uint32_t max_msg_sz;
  uint32_t bad_pkey_cntr;
  uint32_t qkey_viol_cntr;
  uint16_t pkey_tbl_len;
  uint16_t lid;
  uint16_t sm_lid;
  uint8_t lmc;
  uint8_t max_vl_num;
  uint8_t sm_sl;
  uint8_t subnet_timeout;
  uint8_t init_type_reply;
  uint8_t active_width;
  uint8_t active_speed;
  uint8_t phys_state;
  LinkLayer link_layer;
  uint8_t flags;
  uint16_t port_cap_flags2;  // not filled by the exported function
};

struct GidEntry {
  alignas(8) Gid gid;
  uint32_t gid_index;
  uint32_t port_num;
  uint32_t gid_type;  // GidType
  uint32_t ndev_ifindex;
};

struct Pd {
  Context* context;
  uint32_t handle;
};

struct Mr {
  Context* context;
  Pd* pd;
  void* addr;
  size_t length;
  uint32_t handle;
  uint32_t lkey;
  uint32_t rkey;
};

struct Cq {
  Context* context;
  Channel* channel;
  void* cq_context;
  uint32_t handle;
  int cqe;
  pthread_mutex_t mutex;
  pthread_cond_t cond;
  uint32_t comp_events_completed;
  uint32_t async_events_completed;
};

struct Qp {
  Context* context;
  void* qp_context;
  Pd* pd;
  Cq* send_cq;
  Cq* recv_cq;
  Srq* srq;
  uint32_t handle;
  uint32_t qp_num;
  QpState state;
  QpType qp_type;
  pthread_mutex_t mutex;
  pthread_cond_t cond;
  uint32_t events_completed;
};

struct Ah {
  Context* context;
  Pd* pd;
  uint32_t handle;
};

struct QpCap {
  uint32_t max_send_wr;
  uint32_t max_recv_wr;
  uint32_t max_send_sge;
  uint32_t max_recv_sge;
  uint32_t max_inline_data;
};

struct QpInitAttr {
  void* qp_context;
  Cq* send_cq;
  Cq* recv_cq;
  Srq* srq;
  QpCap cap;
  QpType qp_type;
  int sq_sig_all;
};

struct GlobalRoute {
  alignas(8) Gid dgid;
  uint32_t flow_label;
  uint8_t sgid_index;
  uint8_t hop_limit;
  uint8_t traffic_class;
};

struct AhAttr {
  GlobalRoute grh;
  uint16_t dlid;
  uint8_t sl;
  uint8_t src_path_bits;
  uint8_t static_rate;
  uint8_t is_global;
  uint8_t port_num;
};

struct QpAttr {
  QpState qp_state;
  QpState cur_qp_state;
  Mtu path_mtu;
  int path_mig_state;
  uint32_t qkey;
  uint32_t rq_psn;
  uint32_t sq_psn;
  uint32_t dest_qp_num;
  unsigned qp_access_flags;
  QpCap cap;
  AhAttr ah_attr;
  AhAttr alt_ah_attr;
  uint16_t pkey_index;
  uint16_t alt_pkey_index;
  uint8_t en_sqd_async_notify;
  uint8_t sq_draining;
  uint8_t max_rd_atomic;
  uint8_t max_dest_rd_atomic;
  uint8_t min_rnr_timer;
  uint8_t port_num;
  uint8_t timeout;
  uint8_t retry_cnt;
  uint8_t rnr_retry;
  uint8_t alt_port_num;
  uint8_t alt_timeout;
  uint32_t rate_limit;
};

struct Sge {
  uint64_t addr;
  uint32_t length;
  uint32_t lkey;
};

struct SendWr {
  uint64_t wr_id;
  SendWr* next;
  Sge* sg_list;
  int num_sge;
  WrOpcode opcode;
  unsigned send_flags;
  uint32_t imm_data;  // network byte order
  uint64_t remote_addr;
  uint32_t rkey;
  uint64_t not_used[9];  // for other kinds of requests
};

struct RecvWr {
  uint64_t wr_id;
  RecvWr* next;
  Sge* sg_list;
  int num_sge;
};

struct Wc {
  uint64_t wr_id;
  WcStatus status;
  WcOpcode opcode;
  uint32_t vendor_err;
  uint32_t byte_len;
  uint32_t imm_data;  // network byte order
  uint32_t qp_num;
  uint32_t src_qp;
  unsigned wc_flags;
  uint16_t pkey_index;
  uint16_t slid;
  uint8_t sl;
  uint8_t dlid_path_bits;
};

// Posting and polling are no exported functions: they go through these members of a context.
struct ContextOps {
  void* not_used_1[11];
  int (*poll_cq)(Cq* cq, int most, Wc* wc);
  void* not_used_2[13];
  int (*post_send)(Qp* qp, SendWr* wr, SendWr** bad);
  int (*post_recv)(Qp* qp, RecvWr* wr, RecvWr** bad);
  void* not_used_3[5];
};

struct Context {
  Device* device;
  ContextOps ops;
  int cmd_fd;
  int async_fd;
  int num_comp_vectors;
  pthread_mutex_t mutex;
  void* abi_compat;
};

enum EventType : int {
  kEventCqError = 0,
  kEventDeviceFatal = 8,
  kEventPortActive = 9,
  kEventPortError = 10,
};

struct AsyncEvent {
  union {
    void* handle;
    int port;
  } element;
  EventType type;
};

}  // namespace tilewire::verbs::abi

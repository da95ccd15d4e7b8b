// libibverbs and libefa, found at run time: nothing here links to it, so a machine without rdma-core loads the library and runs
// everything but RDMA. All calls go through one table, which tests replace.
//
// Thread-safety: a table is constant once it is filled; its functions may be called from any thread.
#pragma once

#include <string>

#include "transport/verbs/efa_abi.h"

namespace tilewire::verbs {

// X(member, name, result, arguments): `member` of the table is the library's function `name`. Those of the second list
// are missing in old libraries: null there.
#define TILEWIRE_VERBS_CALLS(X)                                                                      \
  X(get_device_list, ibv_get_device_list, abi::Device**, (int* count))                               \
  X(free_device_list, ibv_free_device_list, void, (abi::Device * *list))                             \
  X(get_device_name, ibv_get_device_name, const char*, (abi::Device * device))                       \
  X(open_device, ibv_open_device, abi::Context*, (abi::Device * device))                             \
  X(close_device, ibv_close_device, int, (abi::Context * context))                                   \
  X(query_device, ibv_query_device, int, (abi::Context * context, abi::DeviceAttr * attr))           \
  X(query_port, ibv_query_port, int, (abi::Context * context, uint8_t port, abi::PortAttr * attr))   \
  X(query_gid, ibv_query_gid, int, (abi::Context * context, uint8_t port, int index, abi::Gid* gid)) \
  X(alloc_pd, ibv_alloc_pd, abi::Pd*, (abi::Context * context))                                      \
  X(dealloc_pd, ibv_dealloc_pd, int, (abi::Pd * pd))                                                 \
  X(reg_mr, ibv_reg_mr, abi::Mr*, (abi::Pd * pd, void* begin, size_t bytes, int access))             \
  X(dereg_mr, ibv_dereg_mr, int, (abi::Mr * mr))                                                     \
  X(create_cq, ibv_create_cq, abi::Cq*,                                                              \
    (abi::Context * context, int entries, void* user, abi::Channel* channel, int vector))            \
  X(destroy_cq, ibv_destroy_cq, int, (abi::Cq * cq))                                                 \
  X(create_qp, ibv_create_qp, abi::Qp*, (abi::Pd * pd, abi::QpInitAttr * attr))                      \
  X(modify_qp, ibv_modify_qp, int, (abi::Qp * qp, abi::QpAttr * attr, int mask))                     \
  X(destroy_qp, ibv_destroy_qp, int, (abi::Qp * qp))                                                 \
  X(create_ah, ibv_create_ah, abi::Ah*, (abi::Pd * pd, abi::AhAttr * attr))                          \
  X(destroy_ah, ibv_destroy_ah, int, (abi::Ah * ah))                                                 \
  X(status_text, ibv_wc_status_str, const char*, (abi::WcStatus status))

#define TILEWIRE_VERBS_OPTIONAL_CALLS(X)                                                                          \
  X(query_gid_entry, _ibv_query_gid_ex, int,                                                                      \
    (abi::Context * context, uint32_t port, uint32_t index, abi::GidEntry * entry, uint32_t flags, size_t bytes)) \
  X(reg_mr_optional, ibv_reg_mr_iova2, abi::Mr*,                                                                  \
    (abi::Pd * pd, void* begin, size_t bytes, uint64_t io_address, unsigned access))                              \
  X(reg_dmabuf, ibv_reg_dmabuf_mr, abi::Mr*,                                                                      \
    (abi::Pd * pd, uint64_t offset, size_t bytes, uint64_t io_address, int fd, int access))                       \
  X(qp_to_qp_ex, ibv_qp_to_qp_ex, abi::QpEx*, (abi::Qp * qp))                                                     \
  X(get_async_event, ibv_get_async_event, int, (abi::Context * context, abi::AsyncEvent * event))                 \
  X(ack_async_event, ibv_ack_async_event, void, (abi::AsyncEvent * event))

struct Verbs {
#define TILEWIRE_VERBS_MEMBER(member, name, result, arguments) result(*member) arguments = nullptr;
  TILEWIRE_VERBS_CALLS(TILEWIRE_VERBS_MEMBER)
  TILEWIRE_VERBS_OPTIONAL_CALLS(TILEWIRE_VERBS_MEMBER)
#undef TILEWIRE_VERBS_MEMBER

  // Of the context's own table, as the library's inline functions do it.
  int (*post_send)(abi::Qp* qp, abi::SendWr* wr, abi::SendWr** bad) = nullptr;
  int (*post_recv)(abi::Qp* qp, abi::RecvWr* wr, abi::RecvWr** bad) = nullptr;
  int (*poll_cq)(abi::Cq* cq, int most, abi::Wc* wc) = nullptr;
};

// Those of libefa, which knows the queue pairs that EFA devices have. The length of each structure goes along.
#define TILEWIRE_EFA_CALLS(X)                                                                                   \
  X(query_device, efadv_query_device, int, (abi::Context * context, abi::EfaDeviceAttr * attr, uint32_t bytes)) \
  X(create_cq, efadv_create_cq, abi::CqEx*,                                                                     \
    (abi::Context * context, abi::CqInitAttrEx * attr, abi::EfaCqInitAttr * efa, uint32_t bytes))               \
  X(create_qp, efadv_create_qp_ex, abi::Qp*,                                                                    \
    (abi::Context * context, abi::QpInitAttrEx * attr, abi::EfaQpInitAttr * efa, uint32_t bytes))               \
  X(query_ah, efadv_query_ah, int, (abi::Ah * ah, abi::EfaAhAttr * attr, uint32_t bytes))

struct Efa {
#define TILEWIRE_EFA_MEMBER(member, name, result, arguments) result(*member) arguments = nullptr;
  TILEWIRE_EFA_CALLS(TILEWIRE_EFA_MEMBER)
#undef TILEWIRE_EFA_MEMBER
};

// The table of `library`, a name that the loader finds or a path; it stays loaded, and later calls give the same table.
// Throws Error(unavailable) with the library and the loader's reason, or the function that is missing.
const Verbs& load_verbs(const std::string& library);
const Efa& load_efa(const std::string& library);

// "Cannot allocate memory (12)" of the errno that a call of the library left.
std::string errno_text(int number);

}  // namespace tilewire::verbs

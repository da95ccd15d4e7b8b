// For tests: a table of verbs whose devices carry nothing. It shows what is asked for, refuses what a test wants refused,
// and counts what is still held. One at a time.
#pragma once

#include <fcntl.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "transport/verbs/table.h"

namespace tilewire {

class FakeDevice {
 public:
  struct Port {
    std::string device;
    verbs::abi::PortAttr attr{};
    std::vector<verbs::abi::GidEntry> gids{};
    std::vector<int> unreadable{};  // rows
  };

  static constexpr uint16_t kLid = 7;

  static Port port(const std::string& device) {
    Port port{.device = device};
    port.attr.state = verbs::abi::kPortActive;
    port.attr.active_mtu = verbs::abi::kMtu4096;
    port.attr.max_msg_sz = 1u << 30;
    port.attr.link_layer = verbs::abi::kLinkEthernet;
    port.attr.gid_tbl_len = 2;
    port.gids = {gid_entry({0xfe, 0x80}, verbs::abi::kGidRoceV2),
                 gid_entry({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1}, verbs::abi::kGidRoceV2)};
    return port;
  }
  static verbs::abi::GidEntry gid_entry(const verbs::abi::Gid& gid, verbs::abi::GidType type) {
    return {.gid = gid, .gid_index = 0, .port_num = 1, .gid_type = type, .ndev_ifindex = 0};
  }

  std::vector<Port> ports{};
  verbs::abi::DeviceAttr attr = default_attr();
  // The call with that name and number (from 0) fails with that errno.
  struct Refusal {
    std::string call;
    int number = 0;
    int error = ENOMEM;
  };
  std::vector<Refusal> refusals{};
  int held = 0;                              // handles that are not freed
  std::map<std::string, int> made{};         // of each kind, by the call that makes it
  std::deque<verbs::abi::Wc> completions{};  // to be polled
  std::vector<std::string> freed{};
  struct DmaBuf {
    uint64_t offset;
    size_t bytes;
    uint64_t io_address;
    int access;
  };
  std::vector<DmaBuf> dma_bufs{};  // registered
  struct Posted {
    verbs::abi::SendWr wr;
    verbs::abi::Sge sge;  // zeros where it has none
  };
  std::vector<Posted> posted{};               // to all send queues
  std::deque<verbs::abi::AsyncEvent> said{};  // by the devices, to be taken
  int not_acknowledged = 0;
  UniqueFd said_fd{eventfd(0, EFD_CLOEXEC)};
  verbs::abi::QpAttr last_path{};  // of the last queue pair brought to RTR
  bool has_new_functions = true;

  FakeDevice() { now_ = this; }
  ~FakeDevice() { now_ = nullptr; }
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;

  verbs::Verbs table() const;

 private:
  static verbs::abi::DeviceAttr default_attr() {
    verbs::abi::DeviceAttr attr{};
    attr.max_qp = 1024;
    attr.max_qp_wr = 8192;
    attr.max_cqe = 1 << 20;
    attr.max_cq = attr.max_mr = attr.max_pd = attr.max_ah = 1 << 16;
    attr.phys_port_cnt = 1;
    return attr;
  }
  static FakeDevice& self() { return *now_; }

  bool refuses(const std::string& call) {
    const int number = calls_[call]++;
    for (const Refusal& refusal : refusals) {
      if (refusal.call != call || refusal.number != number) continue;
      errno = refusal.error;
      return true;
    }
    return false;
  }
  template <class T>
  T* hand_out(const char* call) {
    if (refuses(call)) return nullptr;
    ++held;
    ++made[call];
    return new T{};
  }
  template <class T>
  int take_back(const char* what, T* handle) {
    --held;
    freed.push_back(what);
    delete handle;
    return 0;
  }
  static Port& port_of(verbs::abi::Context* context) { return *reinterpret_cast<Port*>(context->device); }

  static inline FakeDevice* now_ = nullptr;
  std::map<std::string, int> calls_;
  uint32_t keys_ = 100;
};

inline verbs::Verbs FakeDevice::table() const {
  using namespace verbs;
  Verbs v;
  v.get_device_list = [](int* count) {
    *count = static_cast<int>(self().ports.size());
    auto** list = new abi::Device*[self().ports.size() + 1];
    for (size_t i = 0; i < self().ports.size(); ++i) list[i] = reinterpret_cast<abi::Device*>(&self().ports[i]);
    ++self().held;
    return list;
  };
  v.free_device_list = [](abi::Device** list) {
    --self().held;
    delete[] list;
  };
  v.get_device_name = [](abi::Device* device) { return reinterpret_cast<Port*>(device)->device.c_str(); };
  v.open_device = [](abi::Device* device) {
    auto* context = self().hand_out<abi::Context>("open_device");
    if (context == nullptr) return context;
    context->device = device;
    context->async_fd = self().said_fd.get();
    return context;
  };
  v.close_device = [](abi::Context* context) { return self().take_back("device", context); };
  v.query_device = [](abi::Context*, abi::DeviceAttr* attr) {
    *attr = self().attr;
    return 0;
  };
  v.query_port = [](abi::Context* context, uint8_t, abi::PortAttr* attr) {
    *attr = port_of(context).attr;
    return 0;
  };
  v.query_gid = [](abi::Context* context, uint8_t, int index, abi::Gid* gid) {
    *gid = port_of(context).gids.at(static_cast<size_t>(index)).gid;
    return 0;
  };
  if (has_new_functions) {
    v.query_gid_entry = [](abi::Context* context, uint32_t, uint32_t index, abi::GidEntry* entry, uint32_t, size_t) {
      const Port& port = port_of(context);
      for (const int row : port.unreadable) {
        if (row == static_cast<int>(index)) return EIO;
      }
      if (index >= port.gids.size()) return ENODATA;
      *entry = port.gids[index];
      return 0;
    };
    v.get_async_event = [](abi::Context* context, abi::AsyncEvent* event) {
      // The kernel would wait where the descriptor lets it: here such a caller is told nothing at all.
      const bool may_wait = (fcntl(context->async_fd, F_GETFL) & O_NONBLOCK) == 0;
      if (may_wait || self().said.empty()) return -1;
      *event = self().said.front();
      self().said.pop_front();
      ++self().not_acknowledged;
      return 0;
    };
    v.ack_async_event = [](abi::AsyncEvent*) { --self().not_acknowledged; };
    v.reg_mr_optional = [](abi::Pd* pd, void* begin, size_t bytes, uint64_t, unsigned access) {
      return self().table().reg_mr(pd, begin, bytes, static_cast<int>(access));
    };
  }
  v.alloc_pd = [](abi::Context*) { return self().hand_out<abi::Pd>("alloc_pd"); };
  v.dealloc_pd = [](abi::Pd* pd) { return self().take_back("pd", pd); };
  v.reg_mr = [](abi::Pd*, void* begin, size_t bytes, int access) {
    auto* mr = self().hand_out<abi::Mr>("reg_mr");
    if (mr == nullptr) return mr;
    mr->addr = begin;
    mr->length = bytes;
    mr->handle = static_cast<uint32_t>(access);
    mr->lkey = mr->rkey = self().keys_++;
    return mr;
  };
  v.reg_dmabuf = [](abi::Pd*, uint64_t offset, size_t bytes, uint64_t io_address, int, int access) {
    auto* mr = self().hand_out<abi::Mr>("reg_dmabuf");
    if (mr == nullptr) return mr;
    self().dma_bufs.push_back({offset, bytes, io_address, access});
    mr->lkey = mr->rkey = self().keys_++;
    return mr;
  };
  v.dereg_mr = [](abi::Mr* mr) { return self().take_back("mr", mr); };
  v.create_cq = [](abi::Context*, int, void*, abi::Channel*, int) { return self().hand_out<abi::Cq>("create_cq"); };
  v.destroy_cq = [](abi::Cq* cq) { return self().take_back("cq", cq); };
  v.create_qp = [](abi::Pd*, abi::QpInitAttr*) {
    // Its room for inline data is what was asked for.
    auto* qp = self().hand_out<abi::Qp>("create_qp");
    if (qp != nullptr) qp->qp_num = self().keys_++;
    return qp;
  };
  v.modify_qp = [](abi::Qp*, abi::QpAttr* attr, int) {
    if (self().refuses("modify_qp")) return errno;
    if (attr->qp_state == abi::kQpRtr) self().last_path = *attr;
    return 0;
  };
  v.destroy_qp = [](abi::Qp* qp) { return self().take_back("qp", qp); };
  v.status_text = [](abi::WcStatus) { return "a status"; };
  v.post_send = [](abi::Qp*, abi::SendWr* wr, abi::SendWr**) {
    if (self().refuses("post_send")) return errno;
    for (; wr != nullptr; wr = wr->next) self().posted.push_back({*wr, wr->num_sge > 0 ? *wr->sg_list : abi::Sge{}});
    return 0;
  };
  v.post_recv = [](abi::Qp*, abi::RecvWr*, abi::RecvWr**) { return self().refuses("post_recv") ? errno : 0; };
  v.poll_cq = [](abi::Cq*, int most, abi::Wc* wc) {
    int count = 0;
    for (; count < most && !self().completions.empty(); ++count) {
      wc[count] = self().completions.front();
      self().completions.pop_front();
    }
    return count;
  };
  return v;
}

}  // namespace tilewire

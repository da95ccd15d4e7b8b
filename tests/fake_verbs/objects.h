// What the fake library hands out. Each begins with the structure that its user sees.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fake_verbs/codes.h"
#include "transport/verbs/efa_abi.h"

namespace tilewire::fake_verbs {

using namespace verbs;
using Clock = std::chrono::steady_clock;

struct Nic;
struct FakeQp;
struct FakeMr;

struct Packet {
  uint32_t is_answer = 0;
  Code code = Code::ok;  // of an answer
  bool has_immediate = false;
  bool is_unsolicited = false;
  abi::Gid from{};
  abi::Gid to{};
  uint32_t from_qp = 0;
  uint32_t to_qp = 0;
  uint32_t qkey = 0;
  uint32_t immediate = 0;
  uint32_t rkey = 0;
  uint32_t length = 0;  // of the message
  uint32_t offset = 0;
  uint32_t bytes = 0;  // that follow
  uint64_t remote = 0;
  uint64_t number = 0;
  uint64_t place = 0;  // RC: of the message
};

// One device of this process, of EFA or RoCE. Its GID is its own, so a process is a host.
struct FakeDevice {
  Nic* nic = nullptr;
  bool is_roce = false;
  uint32_t index = 0;  // bit of Settings::mute
  std::string name;
  abi::Gid gid{};
  int socket = -1;
  std::map<uint32_t, FakeQp*> qps{};          // by number
  std::map<uint32_t, FakeMr*> memory{};       // by key
  std::map<abi::Gid, uint16_t> ah_numbers{};  // given out once for each GID
  uint32_t next_qp = 100;                     // the same on each host: a number alone does not say who somebody is
  uint32_t next_key = 7;
};

struct FakeContext {
  abi::Context base{};
  FakeDevice* device = nullptr;
};

struct FakePd {
  abi::Pd base{};
  FakeDevice* device = nullptr;
  int users = 0;
  std::map<abi::Gid, int> known{};  // address handles by GID
};

struct FakeMr {
  abi::Mr base{};
  FakePd* pd = nullptr;
  int access = 0;

  bool covers(uint64_t addr, uint64_t bytes) const {
    const auto begin = reinterpret_cast<uint64_t>(base.addr);
    return addr >= begin && bytes <= base.length && addr - begin <= base.length - bytes;
  }
};

struct FakeAh {
  abi::Ah base{};
  FakePd* pd = nullptr;
  abi::Gid gid{};
  uint16_t number = 0;
};

// A queue that allocates nothing once it has been as long as it gets.
template <class T>
class Fifo {
 public:
  bool empty() const { return head_ == items_.size(); }
  size_t size() const { return items_.size() - head_; }
  void push(const T& item) {
    if (head_ > 1024 && head_ * 2 > items_.size()) {
      items_.erase(items_.begin(), items_.begin() + static_cast<ptrdiff_t>(head_));
      head_ = 0;
    }
    items_.push_back(item);
  }
  void push_front(std::span<const T> items) {
    items_.insert(items_.begin() + static_cast<ptrdiff_t>(head_), items.begin(), items.end());
  }
  T pop() {
    T item = items_[head_++];
    if (empty()) {
      items_.clear();
      head_ = 0;
    }
    return item;
  }

 private:
  std::vector<T> items_;
  size_t head_ = 0;
};

struct Completion {
  abi::Wc wc{};
  uint32_t ah_number = 0;
};

struct FakeCq {
  abi::CqEx ex{};
  Nic* nic = nullptr;
  int users = 0;
  size_t most = 0;
  bool keeps_order = false;        // as of RC
  bool is_lossy = false;           // it has overflowed
  std::vector<Completion> held{};  // kept back to come in another order
  Fifo<Completion> ready{};
  std::atomic<size_t> ready_count{0};
  std::vector<Completion> batch{};  // between start_poll and end_poll, of its poller alone
  size_t at = 0;
  bool is_polled = false;
};

constexpr uint32_t kMostInlineBytes = 64;  // of RC

// A request, on its way.
struct Message {
  uint64_t number = 0;
  FakeQp* qp = nullptr;
  uint64_t wr_id = 0;
  uint64_t place = 0;  // RC: among those of its queue pair
  bool is_signalled = true;
  bool is_inline = false;
  std::array<std::byte, kMostInlineBytes> inline_data{};
  std::optional<Code> verdict{};  // of what its own side says of it, once that was asked
  bool has_immediate = false;
  uint32_t immediate = 0;
  uint32_t rkey = 0;
  uint64_t remote = 0;
  uint64_t local = 0;
  uint32_t lkey = 0;
  uint32_t bytes = 0;
  abi::Gid to{};
  uint32_t to_qp = 0;
  uint32_t qkey = 0;
  bool has_source = false;
  bool has_target = false;
  std::vector<uint32_t> unsent{};  // offsets of packets
  Clock::time_point give_up{};
  Code give_up_code = Code::unresponsive;
  Clock::time_point again{};  // after the receiver was not ready
  uint32_t times_not_ready = 0;

  const std::byte* source() const { return is_inline ? inline_data.data() : reinterpret_cast<const std::byte*>(local); }
};

struct FakeQp {
  abi::QpEx ex{};
  FakeDevice* device = nullptr;
  FakePd* pd = nullptr;
  FakeCq* send_cq = nullptr;
  FakeCq* recv_cq = nullptr;
  abi::QpCap cap{};
  bool is_unsolicited = false;
  bool signals_all = false;
  uint32_t qkey = 0;
  uint8_t rnr_retry = 7;
  bool has_failed = false;
  bool is_rc = false;
  abi::Gid peer{};  // RC: the other end
  uint32_t peer_number = 0;
  uint64_t posted = 0;
  uint64_t taken = 0;  // of those that the other end has posted
  struct Early {
    Packet packet;
    Code code = Code::ok;
  };
  std::map<uint64_t, Early> early{};  // here before their turn, by place
  uint32_t unsignalled = 0;           // done, and their entries are free with the next that is signalled
  uint32_t under_way = 0;
  Fifo<uint64_t> receives{};  // wr_id
  std::vector<Message> session{};
  int session_error = 0;
};

}  // namespace tilewire::fake_verbs

// The devices of a process and the wire between them and those of other processes. A message is cut into packets; packets
// of all messages under way are sent in a random order, and the target's device puts each where it belongs. It answers
// when all of a message is there, or with what is wrong. Devices of one process reach each other directly, others over a
// datagram socket that is named by the GID.
//
// A request of RC goes the same way, and what a queue pair promises of it is kept: its immediates and completions keep
// their order, one that fails ends the queue pair at its end, one that is refused also at the other. Where soft-RoCE does
// otherwise, that is right.
//
// Thread-safety: everything under `mutex`.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fake_verbs/objects.h"
#include "fake_verbs/settings.h"

namespace tilewire::fake_verbs {

// Bytes into memory as a device puts them there: eight of them, where they are aligned, at once.
void place(uint64_t to, const std::byte* from, uint32_t bytes);

struct Nic {
  // The one of this process; another one in a forked child.
  static Nic& get();

  Nic();

  // After a change of settings.
  void settings_changed();
  void open(FakeDevice& device);  // it can be reached from now on
  // Takes a batch of requests that has been checked, or none of it: ENOMEM.
  int send(FakeQp& qp);
  // Takes one request of RC that has been checked.
  void post(Message message);
  void flush_receives(FakeQp& qp);
  void forget(FakeQp* qp);
  void forget(FakeCq* cq);
  void complete(FakeCq& cq, const Completion& completion);
  // Moves what is ready out of its order into cq.batch; false when there is nothing.
  bool fetch(FakeCq& cq, size_t most);
  bool refuses(const char* call);

  std::mutex mutex;
  Settings settings;
  std::vector<std::unique_ptr<FakeDevice>> devices;
  std::map<std::string, int64_t> counts;  // "qp": held now; "posted", "overtaken", "overflows", ...: so far

 private:
  using Inbound = std::tuple<abi::Gid, uint32_t, uint64_t>;  // from, its queue pair, number

  void run();
  void start_thread();
  void add_devices(bool is_roce, uint64_t count);
  void make_socket(FakeDevice& device);
  bool take_sockets();
  void take_in_order(FakeDevice& device, FakeQp& qp);
  bool take_answers();
  void fail_refusers();
  bool send_late_answers();
  bool send_packets();
  bool take_next();
  size_t next_flying();
  bool has_older(const Message& message) const;
  bool retry_not_ready();
  bool give_up_on_silent();
  bool release_held(bool all);
  void start(Message& message);
  bool is_to_fail(const Message& message);
  void carry_at_once(Message& message);
  void settle(uint64_t number, Code code);
  Packet packet_of(const Message& message, uint32_t offset) const;
  // False where it has to be tried again.
  bool transmit(const Packet& packet, const std::byte* data);
  void take_packet(const Packet& packet, const std::byte* data);
  void take_data(FakeDevice& device, const Packet& packet, const std::byte* data);
  Code check_target(FakeDevice& device, const Packet& packet) const;
  static Code check_receiver(const FakeQp& qp, const Packet& packet);
  Code deliver(FakeDevice& device, const Packet& packet);
  void answer(const Packet& packet, Code code);
  void finish(const Message& message, Code code);
  void fail_queue_pair(Message message);
  void flush(FakeQp& qp);
  FakeDevice* local(const abi::Gid& gid);
  void wake();
  void sleep(bool is_waiting);
  bool is_mute(const FakeDevice& device) const { return (settings.mute >> device.index & 1) != 0; }

  std::mt19937_64 random_;
  std::deque<Message> queue_;                               // posted
  std::vector<Message> flying_;                             // with packets to send
  std::map<uint64_t, Message> unanswered_;                  // all sent, by number
  std::map<Inbound, uint64_t> inbound_;                     // bytes that are here
  std::vector<std::pair<FakeDevice*, uint32_t>> refusers_;  // queue pairs of RC that have refused a request
  std::deque<Packet> answers_;                              // to requests of this process
  std::deque<Packet> late_answers_;                         // for which a socket had no room
  std::vector<FakeCq*> holding_;
  std::map<std::tuple<abi::Gid, uint32_t, abi::Gid, uint32_t>, uint64_t> newest_;  // delivered of a pair
  uint64_t next_number_ = 1;
  uint64_t requests_ = 0;
  uint64_t batches_ = 0;
  std::map<std::string, uint64_t> calls_;
  std::atomic<bool> is_asleep_{false};
  int wake_fd_ = -1;
  bool has_thread_ = false;
  Nic* parents_ = nullptr;  // in a forked child: kept, and never looked at
};

}  // namespace tilewire::fake_verbs

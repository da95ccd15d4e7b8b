// How much of what bare verbs carry the proxy carries, over soft-RoCE in the guest: chunks as commands through ring, proxy
// and RC transport, beside a loop that does nothing but post writes with immediates of the same size, and receives.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/bench_row.h"
#include "guest_wire.h"
#include "transport/idle_pacer.h"
#include "transport/proxy.h"
#include "transport/proxy_engine.h"
#include "transport/rc/rc_port.h"
#include "transport/rc/rc_transport.h"
#include "transport/request_table.h"
#include "transport/test_network.h"

namespace tilewire {
namespace {

using namespace verbs;
using Clock = std::chrono::steady_clock;

// Of the bare loop, as the proxy and the transport have them with the options as they are.
const int kDepth = static_cast<int>(RequestTable::credits(RcOptions{}.send_entries));  // messages under way
const int kReceives = static_cast<int>(RcOptions{}.receive_entries);
constexpr int kChain = ProxyEngine::kPostBatch;  // messages of one post at most, the last one signalled
constexpr int kSignalEvery = 16;                 // and of a long one some others

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// One end of a bare connection.
struct BareEnd {
  BareEnd(const Verbs& table, const std::string& device, uint64_t bytes) : verbs(table), memory(bytes) {
    RcOptions options;
    options.device = device;
    port = open_port(verbs, rc_port_wish(options), {});
    pd = Pd(verbs, verbs.alloc_pd(port.context.get()));
    cq = Cq(verbs, verbs.create_cq(port.context.get(), kDepth + kReceives, nullptr, nullptr, 0));
    mr = Mr(verbs, verbs.reg_mr(pd.get(), memory.data(), bytes, abi::kAccessLocalWrite | abi::kAccessRemoteWrite));
    abi::QpInitAttr init{};
    init.send_cq = init.recv_cq = cq.get();
    init.qp_type = abi::kQpRc;
    init.cap = {.max_send_wr = static_cast<uint32_t>(kDepth),
                .max_recv_wr = static_cast<uint32_t>(kReceives),
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    qp = Qp(verbs, verbs.create_qp(pd.get(), &init));
    abi::QpAttr attr{};
    attr.qp_state = abi::kQpInit;
    attr.port_num = port.number;
    attr.qp_access_flags = abi::kAccessLocalWrite | abi::kAccessRemoteWrite;
    modify(attr, abi::kMaskState | abi::kMaskPkeyIndex | abi::kMaskPort | abi::kMaskAccessFlags);
    post_receives(kReceives);
  }
  void modify(abi::QpAttr& attr, int mask) {
    if (verbs.modify_qp(qp.get(), &attr, mask) != 0) throw std::runtime_error("a bare queue pair cannot be connected");
  }
  void connect(const BareEnd& peer) {
    abi::QpAttr attr{};
    attr.qp_state = abi::kQpRtr;
    attr.path_mtu = abi::kMtu4096;
    attr.dest_qp_num = peer.qp->qp_num;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr.port_num = port.number;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = peer.port.gid.gid;
    attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(port.gid.index);
    attr.ah_attr.grh.hop_limit = 64;
    modify(attr, abi::kMaskState | abi::kMaskAv | abi::kMaskPathMtu | abi::kMaskDestQpn | abi::kMaskRqPsn |
                     abi::kMaskMaxDestRdAtomic | abi::kMaskMinRnrTimer);
    attr = {};
    attr.qp_state = abi::kQpRts;
    attr.timeout = 17;
    attr.retry_cnt = attr.rnr_retry = 6;
    attr.max_rd_atomic = 1;
    modify(attr, abi::kMaskState | abi::kMaskTimeout | abi::kMaskRetryCnt | abi::kMaskRnrRetry | abi::kMaskSqPsn |
                     abi::kMaskMaxRdAtomic);
  }
  void post_receives(int count) {
    std::fill(receives.begin(), receives.end(), abi::RecvWr{});
    for (int i = 0; i + 1 < count; ++i) receives[i].next = &receives[i + 1];
    abi::RecvWr* bad = nullptr;
    if (verbs.post_recv(qp.get(), receives.data(), &bad) != 0) throw std::runtime_error("no bare receives");
  }
  void post_writes(const BareEnd& to, uint64_t first, int count, uint64_t bytes) {
    std::array<abi::SendWr, kChain> chain{};
    std::array<abi::Sge, kChain> sges{};
    int unsignalled = 0;
    for (int i = 0; i < count; ++i) {
      const uint64_t at = (first + static_cast<uint64_t>(i)) * bytes % (memory.size() - bytes + 1) / bytes * bytes;
      sges[i] = {reinterpret_cast<uint64_t>(memory.data()) + at, static_cast<uint32_t>(bytes), mr->lkey};
      chain[i].wr_id = static_cast<uint64_t>(++unsignalled);  // messages that its completion stands for
      if (unsignalled == kSignalEvery || i + 1 == count) {
        chain[i].send_flags = abi::kSendSignaled;
        unsignalled = 0;
      }
      chain[i].opcode = abi::kWrRdmaWriteWithImm;
      chain[i].sg_list = &sges[i];
      chain[i].num_sge = 1;
      chain[i].remote_addr = reinterpret_cast<uint64_t>(to.memory.data()) + at;
      chain[i].rkey = to.mr->rkey;
      if (i + 1 < count) chain[i].next = &chain[i + 1];
    }
    abi::SendWr* bad = nullptr;
    if (verbs.post_send(qp.get(), chain.data(), &bad) != 0) throw std::runtime_error("no bare post");
  }
  // Messages that are done since the last look: that have completed, or that have come.
  int take() {
    std::array<abi::Wc, 32> done;
    const int count = verbs.poll_cq(cq.get(), static_cast<int>(done.size()), done.data());
    int messages = 0, receives = 0;
    for (int i = 0; i < count; ++i) {
      if (done[i].status != abi::kWcSuccess) throw std::runtime_error("a bare write failed");
      receives += done[i].wr_id == 0 ? 1 : 0;
      messages += done[i].wr_id == 0 ? 1 : static_cast<int>(done[i].wr_id);
    }
    if (receives > 0) post_receives(receives);
    return messages;
  }

  const Verbs& verbs;
  std::vector<std::byte> memory;
  Port port;
  Pd pd;
  Cq cq;
  Mr mr;
  Qp qp;
  std::vector<abi::RecvWr> receives = std::vector<abi::RecvWr>(static_cast<size_t>(kReceives));
};

constexpr uint64_t kMemory = 4 << 20;

// Messages a second of the bare loop: a thread at each end, which waits as a proxy does. Soft-RoCE works on the same
// processors, so that threads which only look on would make the loop slower than what it is the measure of.
class BareLoop {
 public:
  BareLoop() { from_.connect(to_), to_.connect(from_); }
  double rate(int messages, uint64_t bytes) {
    std::atomic<int> arrived{0};  // the receiver has entries for more than are under way
    const auto begin = Clock::now();
    std::thread receiver([&] {
      IdlePacer pacer = prepared_pacer();
      for (int count = 0; count < messages; arrived.store(count)) count += take_or_wait(to_, pacer);
    });
    IdlePacer pacer = prepared_pacer();
    for (int posted = 0, completed = 0; completed < messages;) {
      const int room = std::min(kDepth - (posted - std::min(completed, arrived.load())), messages - posted);
      if (room > 0) {
        const int count = std::min(room, kChain);
        from_.post_writes(to_, static_cast<uint64_t>(posted), count, bytes);
        posted += count;
      }
      completed += take_or_wait(from_, pacer);
    }
    receiver.join();
    return messages / seconds_since(begin);
  }

 private:
  static IdlePacer prepared_pacer() {
    IdlePacer::prepare_thread();
    return IdlePacer(IdleTimes{});
  }
  static int take_or_wait(BareEnd& end, IdlePacer& pacer) {
    const int taken = end.take();
    if (taken > 0) {
      pacer.worked();
    } else {
      pacer.pause();
    }
    return taken;
  }

  const Verbs& verbs_ = load_verbs("libibverbs.so.1");
  BareEnd from_{verbs_, guest_device(0), kMemory}, to_{verbs_, guest_device(1), kMemory};
};

// The same of commands through the proxies of two ranks.
class ProxyPair {
 public:
  ProxyPair()
      : net_(2, [](const TransportContext& context) {
          RcOptions options;
          options.device = guest_device(context.rank.value);
          return make_rc_transport(context, options, load_verbs(options.library));
        }) {
    for (int32_t r = 0; r < 2; ++r) {
      sinks_[r] = std::make_unique<WordSink>(net_.arena(r), net_.layout());
      proxies_[r] = std::make_unique<Proxy>(ProxyConfig{.rank = Rank{r},
                                                        .layout = net_.layout(),
                                                        .control_page = net_.arena(r),
                                                        .half_bytes = kMemory,
                                                        .peers = {Rank{1 - r}},
                                                        .rings = {rings_[r].memory()},
                                                        .arrivals = sinks_[r].get()},
                                            net_.transport(r), ProxyOptions{});
    }
  }
  ~ProxyPair() {
    for (const auto& proxy : proxies_) proxy->stop();
  }
  double rate(int messages, uint64_t bytes) {
    const uint64_t done = proxies_[0]->totals().completions + static_cast<uint64_t>(messages);
    const auto units = static_cast<uint32_t>(bytes / kWireUnitBytes);
    const auto begin = Clock::now();
    for (int i = 0; i < messages; ++i) {
      const uint64_t at = static_cast<uint64_t>(i) * bytes % (kMemory - bytes + 1) / bytes * units;
      const Command chunk{.peer = Rank{1}, .word = 9, .units = units, .src_unit = at, .dst_unit = at};
      while (!producer_.try_post(chunk)) std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    while (proxies_[0]->totals().completions < done) std::this_thread::sleep_for(std::chrono::microseconds(200));
    return messages / seconds_since(begin);
  }

 private:
  TestNetwork net_;
  std::array<CommandRing, 2> rings_{CommandRing(256), CommandRing(256)};
  CommandProducer producer_{rings_[0].memory()};
  std::array<std::unique_ptr<WordSink>, 2> sinks_;
  std::array<std::unique_ptr<Proxy>, 2> proxies_;
};

// Rates one right after the other.
struct Turn {
  double bare = 0;
  double ours = 0;
  double ratio() const { return ours / bare; }
};

// The guest is as fast as its host leaves it, which may change from turn to turn, and little within one.
Turn middle(std::vector<Turn> turns) {
  const auto half = turns.begin() + static_cast<ptrdiff_t>(turns.size() / 2);
  std::nth_element(turns.begin(), half, turns.end(),
                   [](const Turn& a, const Turn& b) { return a.ratio() < b.ratio(); });
  return *half;
}

void BM_ProxyOverSoftRoce(benchmark::State& state) {
  const auto bytes = static_cast<uint64_t>(state.range(0));
  const int messages = static_cast<int>(std::min((uint64_t{16} << 20) / bytes, uint64_t{2048}));
  BenchRow row(state, 2);
  ProxyPair ours;
  BareLoop bare;
  std::vector<Turn> turns;
  for (auto _ : state) {
    Turn& turn = turns.emplace_back();
    turn.bare = bare.rate(messages, bytes);
    turn.ours = ours.rate(messages, bytes);
    state.SetIterationTime(messages / turn.ours);
  }
  const Turn turn = middle(std::move(turns));
  const double mega = static_cast<double>(bytes) / 1e6;
  row.report({.ours = turn.ours * mega,
              .baseline = turn.bare * mega,
              .baseline_name = "bare ibv_post_send loop",
              .unit = "MB/s",
              .goal = ">= 0.9 of the bare loop",
              .meets_goal = turn.ratio() >= 0.9,
              .note = "soft-RoCE in an emulated guest"});
}
BENCHMARK(BM_ProxyOverSoftRoce)->ArgName("bytes")->Arg(4096)->Arg(65536)->Arg(1 << 20)->UseManualTime()->Iterations(15);

}  // namespace
}  // namespace tilewire

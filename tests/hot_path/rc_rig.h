// Proxy engines over the RC transports of two ranks on looping devices; no thread.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "hot_path/looping_device.h"
#include "memory/words.h"
#include "transport/bootstrap/byte_codec.h"
#include "transport/proxy_engine.h"
#include "transport/rc/rc_transport.h"

namespace tilewire {

template <RcSignal kSignal, int kNics>
class RcEngineRig {
 public:
  RcEngineRig() {
    for (int32_t r = 0; r < 2; ++r) ends_[r].transport = make(r);
    const std::vector<Bytes> addresses{ends_[0].transport->address(), ends_[1].transport->address()};
    for (int32_t r = 0; r < 2; ++r) {
      ends_[r].transport->connect(addresses, std::chrono::seconds(1));
      ends_[r].start(Rank{r}, layout_);
    }
  }

  // A call of so many chunks and one signal to either side, from the rings to the last completions.
  void call(int chunks) {
    for (int i = 0; i < chunks; ++i) post({.kind = CommandKind::write, .word = 9, .units = 64});
    post({.kind = CommandKind::signal, .word = 8});
    post({.kind = CommandKind::call_end, .epoch = epoch_++});
    while (step() || !ends_[0].engine->is_idle() || !ends_[1].engine->is_idle()) {
    }
  }
  static constexpr const char* kName = kSignal == RcSignal::ordered      ? "rc_ordered"
                                       : kSignal == RcSignal::completion ? "rc_completion"
                                       : kNics > 1                       ? "rc_two_nics"
                                                                         : "rc";
  // What a chunk takes: one write, or data and a word.
  static constexpr uint64_t kWritesOfAChunk = kSignal == RcSignal::immediate ? 1 : 2;
  static constexpr bool kHasArrivals = kSignal == RcSignal::immediate;

  uint64_t completions() const { return ends_[0].counters.completions.value(); }
  uint64_t arrivals() const { return ends_[0].counters.peers[0].arrivals.value(); }
  Epoch word_of_chunks() const { return load_word(ends_[0].arena.data(), layout_, 9); }

 private:
  static constexpr uint64_t kHalf = 1 << 16;
  struct End {
    std::vector<std::byte> arena;
    std::unique_ptr<Transport> transport;
    CommandRing ring{1024};
    CommandProducer producer{ring.memory()};
    std::unique_ptr<WordSink> sink;
    CommittedBytes committed;
    ProxyCounters counters{1};
    std::unique_ptr<ProxyEngine> engine;

    void start(Rank rank, const ArenaLayout& layout) {
      sink = std::make_unique<WordSink>(arena.data(), layout);
      committed.half.store(kHalf);
      ProxyConfig config{.rank = rank, .layout = layout, .control_page = arena.data(), .half_bytes = kHalf};
      config.peers = {Rank{1 - rank.value}};
      config.rings = {ring.memory()};
      config.arrivals = sink.get();
      engine = std::make_unique<ProxyEngine>(config, *transport, committed, counters);
    }
  };

  bool step() {
    const bool first = ends_[0].engine->step();
    return ends_[1].engine->step() || first;
  }
  void post(Command command) {
    for (int32_t r = 0; r < 2; ++r) {
      if (command.kind != CommandKind::call_end) command.peer = Rank{1 - r};
      while (!ends_[r].producer.try_post(command)) step();
    }
  }
  std::unique_ptr<Transport> make(int32_t rank) {
    std::vector<std::byte>& arena = ends_[rank].arena;
    arena.resize(static_cast<size_t>(layout_.total_bytes()));
    TransportContext context{.rank = Rank{rank}, .ranks = 2, .peers = {Rank{1 - rank}}, .arena = arena.data()};
    context.arena_bytes = arena.size();
    context.local = rank;
    RcOptions options;
    options.signal = kSignal;
    options.nics = kNics;
    auto transport = make_rc_transport(context, options, table_);
    transport->register_arena(0, arena.size());
    return transport;
  }

  ArenaLayout layout_{.flags = {.ranks = 2, .max_chunks = 64}, .half_stride_bytes = kHalf};
  LoopingDevice device_{kNics};
  verbs::Verbs table_ = device_.table();
  std::array<End, 2> ends_;
  Epoch epoch_ = 1;
};

}  // namespace tilewire

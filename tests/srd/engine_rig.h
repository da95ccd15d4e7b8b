// A proxy engine over the SRD transport of rank 0 on a null device; no thread. Rank 1 is an address alone.
#pragma once

#include <memory>
#include <vector>

#include "base/check.h"
#include "fake_verbs/control.h"
#include "memory/words.h"
#include "srd/null_device.h"
#include "transport/proxy_engine.h"
#include "transport/srd/srd_transport.h"

namespace tilewire {

class SrdEngineRig {
 public:
  SrdEngineRig() {
    transport_->register_arena(0, arena_.size());
    SrdAddress peer = SrdAddress::unpack(Rank{0}, transport_->address());
    peer.queues = {NullDevice::kPeerQueue};
    peer.report_queue = NullDevice::kPeerQueue + 1;
    transport_->connect(std::vector<Bytes>{{}, peer.pack()}, std::chrono::seconds(1));
    committed_.half.store(kHalf);
    ProxyConfig config{.rank = Rank{0}, .layout = layout_, .control_page = arena_.data(), .half_bytes = kHalf};
    config.peers = {Rank{1}};
    config.rings = {ring_.memory()};
    config.arrivals = &sink_;
    engine_ = std::make_unique<ProxyEngine>(config, *transport_, committed_, counters_);
  }

  // A call of so many chunks and one signal, from the ring to the last completion.
  void call(int chunks) {
    const Command chunk{.kind = CommandKind::write, .peer = Rank{1}, .word = 9, .units = 64};
    for (int i = 0; i < chunks; ++i) post(chunk);
    post({.kind = CommandKind::signal, .peer = Rank{1}, .word = 8});
    post({.kind = CommandKind::call_end, .epoch = epoch_++});
    while (engine_->step() || !engine_->is_idle()) {
    }
  }
  static constexpr const char* kName = "srd";
  static constexpr uint64_t kWritesOfAChunk = 1;
  static constexpr bool kHasArrivals = true;

  uint64_t completions() const { return counters_.completions.value(); }
  uint64_t arrivals() const { return counters_.peers[0].arrivals.value(); }
  Epoch word_of_chunks() const { return load_word(arena_.data(), layout_, 9); }

 private:
  static constexpr uint64_t kHalf = 1 << 16;

  void post(const Command& command) {
    while (!producer_.try_post(command)) engine_->step();
  }
  static SrdOptions options() {
    SrdOptions options;
    options.verbs_library = options.efa_library = FakeVerbs::library();
    return options;
  }
  std::unique_ptr<Transport> make() {
    TransportContext context{.rank = Rank{0}, .ranks = 2, .peers = {Rank{1}}, .arena = arena_.data()};
    context.arena_bytes = arena_.size();
    const SrdLibraries libraries = device_.libraries();
    return make_srd_port_transport(context, options(), libraries,
                                   open_port(*libraries.verbs, srd_port_wish(libraries, options()), context));
  }

  ArenaLayout layout_{.flags = {.ranks = 2, .max_chunks = 64}, .half_stride_bytes = kHalf};
  std::vector<std::byte> arena_ = std::vector<std::byte>(static_cast<size_t>(layout_.total_bytes()));
  NullDevice device_{load_srd_libraries(options())};
  std::unique_ptr<Transport> transport_ = make();
  CommandRing ring_{1024};
  CommandProducer producer_{ring_.memory()};
  WordSink sink_{arena_.data(), layout_};
  CommittedBytes committed_;
  ProxyCounters counters_{1};
  Epoch epoch_ = 1;
  std::unique_ptr<ProxyEngine> engine_;
};

}  // namespace tilewire

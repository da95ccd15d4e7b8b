// The proxy's engine over every transport: a rank that stops looking holds up what goes to itself, and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "conformance/variants.h"
#include "transport/proxy_engine.h"

namespace tilewire {
namespace {

class EngineConformance : public ::testing::TestWithParam<TransportVariant> {
 protected:
  static ArenaLayout layout() {
    ArenaLayout layout = TestNetwork::default_layout(3);
    layout.flags.max_chunks = 1024;  // words enough for one of its own for each command
    return layout;
  }
};

// Rank 0, which sends.
struct Sender {
  explicit Sender(TestNetwork& net) : sink(net.arena(0), net.layout()) {
    committed.half = static_cast<uint64_t>(net.layout().half_stride_bytes);
    ProxyConfig config{.rank = Rank{0}, .layout = net.layout(), .control_page = net.arena(0)};
    config.half_bytes = committed.half;
    config.peers = {Rank{1}, Rank{2}};
    config.rings = {ring.memory()};
    config.arrivals = &sink;
    engine = std::make_unique<ProxyEngine>(config, net.transport(0), committed, counters);
  }

  CommandRing ring{64};
  CommandProducer producer{ring.memory()};
  WordSink sink;
  CommittedBytes committed;
  ProxyCounters counters{2};
  std::unique_ptr<ProxyEngine> engine;
};

TEST_P(EngineConformance, ARankThatStopsLookingHoldsUpNoOther) {
  TestNetwork net(layout(), GetParam().make);
  Sender sender(net);
  const bool is_counted = sender.engine->arrival().strategy == ArrivalStrategy::counted;
  const auto most = static_cast<uint32_t>(std::min<int64_t>(net.layout().flags.words(), 2500));
  size_t arrived = 0;  // at rank 2
  uint32_t sent = 0;   // to each
  // Until rank 1's own have filled the engine, which is as much as a rank may hold up.
  for (; sent < most && sender.counters.credit_stalls.value() == 0; ++sent) {
    for (const Rank peer : {Rank{1}, Rank{2}}) {
      ASSERT_TRUE(sender.producer.try_post(
          {.kind = CommandKind::write, .peer = peer, .word = sent, .units = 4, .src_unit = 1, .dst_unit = 2}));
    }
    ASSERT_TRUE(step_until([&] {
      sender.engine->step();
      std::array<Event, 16> events;
      const size_t n = net.transport(2).poll(events);
      arrived += static_cast<size_t>(std::count_if(
          events.begin(), events.begin() + n, [](const Event& event) { return event.kind == EventKind::arrived; }));
      const bool is_here = is_counted ? arrived > sent : load_word(net.arena(2), net.layout(), sent) == 1;
      return is_here || sender.counters.credit_stalls.value() > 0;
    })) << "command "
        << sent << " to rank 2 is held up";
  }
  EXPECT_GE(sent, 12u);
  const bool is_short = GetParam().name.find("short_queues") != std::string::npos;
  EXPECT_TRUE(!is_short || sender.counters.post_refusals.value() > 0) << "rank 1 took all, so nothing was tested";
}

INSTANTIATE_TEST_SUITE_P(Transports, EngineConformance, ::testing::ValuesIn(transport_variants()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tilewire

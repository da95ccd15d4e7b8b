#include "conformance/variants.h"

#include <fmt/format.h>

#include "fake_verbs/control.h"
#include "transport/emulated/emulated_transport.h"
#include "transport/fault/fault_transport.h"
#include "transport/nics/striped_transport.h"
#include "transport/registry.h"

namespace tilewire {
namespace {

using OptionSets = std::vector<std::pair<std::string, Options>>;

OptionSets emulated_sets(Options options) {
  OptionSets sets;
  options.emulated_latency_us = 20;
  options.emulated_bandwidth_gbps = 100;
  sets.emplace_back("emulated_rc_slow", options);
  options.emulated_latency_us = 0;
  options.emulated_bandwidth_gbps = 0;
  for (const char* personality : {"rc", "relaxed", "srd"}) {
    options.emulated_personality = personality;
    sets.emplace_back(std::string("emulated_") + personality, options);
  }
  return sets;
}

// RC on devices that are none: see tests/fake_verbs. Data lands in any order there.
OptionSets roce_sets() {
  OptionSets sets;
  FakeVerbs::set("roce=2");
  Options options = FakeVerbs::over("rc", {});
  options.rc_signal = "completion";
  sets.emplace_back("roce_completion", options);
  options.rc_signal = "immediate";
  sets.emplace_back("roce_immediate", options);
  options.rc_send_entries = options.rc_receive_entries = 16;
  options.rc_channels = 3;
  sets.emplace_back("roce_short_queues", options);
  options = FakeVerbs::over("rc", {});
  options.nics = 2;
  sets.emplace_back("roce_two_nics", options);
  return sets;
}

// Nothing is lost in these tests, so nothing need be sent again: what a busy machine has not acknowledged yet soft-RoCE of
// Linux 6.1 refuses when it comes a second time.
constexpr int64_t kRcTimeout = 20;  // 4.3 s

OptionSets rc_sets(Options options) {
  options.rc_timeout = kRcTimeout;
  OptionSets sets;
  for (const char* signal : {"ordered", "completion", "immediate"}) {
    options.rc_signal = signal;
    sets.emplace_back(std::string("rc_") + signal, options);
  }
  // The shortest queues there can be, so that they wrap all the time, and several of them.
  options.rc_send_entries = options.rc_receive_entries = 16;
  options.rc_channels = 3;
  sets.emplace_back("rc_short_queues", options);
  options = {};
  options.transport = "rc";
  options.rc_timeout = kRcTimeout;
  options.nics = 2;
  sets.emplace_back("rc_two_nics", options);
  const OptionSets played = roce_sets();
  sets.insert(sets.end(), played.begin(), played.end());
  return sets;
}

// On devices that are none: see tests/fake_verbs.
OptionSets srd_sets() {
  OptionSets sets;
  Options options = FakeVerbs::options();
  sets.emplace_back("srd", options);
  options.srd_unsolicited = "off";
  sets.emplace_back("srd_with_receives", options);
  options.srd_send_entries = options.srd_receive_entries = 16;
  options.srd_channels = 3;
  sets.emplace_back("srd_short_queues", options);
  options = FakeVerbs::options();
  options.nics = 2;
  sets.emplace_back("srd_two_nics", options);
  return sets;
}

// Sets of options that make one registered transport behave in different ways.
OptionSets option_sets(std::string_view name) {
  Options options;
  options.transport = std::string(name);
  if (name == "emulated") return emulated_sets(options);
  if (name == "rc") return rc_sets(options);
  if (name == "srd") return srd_sets();
  return {{std::string(name), options}};
}

// As a rank with several NICs has it; the NICs are emulated.
std::unique_ptr<Transport> make_striped_emulated(const TransportContext& context, const Options& options) {
  std::vector<StripedNic> nics;
  for (int i = 0; i < 3; ++i) {
    nics.push_back({make_emulated_transport(context, emulated_options(options)), fmt::format("nic{}", i), {}});
  }
  return make_striped_transport(context, std::move(nics));
}

std::vector<TransportVariant> striped_variants() {
  std::vector<TransportVariant> variants;
  Options options;
  options.emulated_personality = "srd";  // one that announces by immediates, as several NICs have to
  variants.push_back(
      {"striped_srd", [options](const TransportContext& context) { return make_striped_emulated(context, options); }});
  return variants;
}

}  // namespace

std::vector<TransportVariant> transport_variants() {
  std::vector<TransportVariant> variants = striped_variants();
  for (const TransportKind& kind : transport_kinds()) {
    const size_t before = variants.size();
    for (const auto& [name, options] : option_sets(kind.name)) {
      if (!kind.why_unavailable(options).empty()) continue;
      const auto make = [options = options](const TransportContext& context) {
        return make_transport(options, context);
      };
      variants.push_back({name, make});
    }
    if (variants.size() == before) continue;
    // The fault transport looks at no more than Caps, so one variant a kind is enough.
    const auto plain = variants.back().make;
    variants.push_back({"fault_" + variants.back().name,
                        [plain](const TransportContext& context) { return make_fault_transport(plain(context), ""); }});
  }
  return variants;
}

}  // namespace tilewire

// The networks that soaks go over: those that any machine can play, or soft-RoCE in the guest of tests/rdma.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fake_verbs/control.h"
#include "soak/soak_run.h"
#include "testing/test_support.h"

namespace tilewire {

// test_options() for each.
inline std::vector<Options> soak_networks() {
  std::vector<Options> networks;
  const auto add = [&](const char* transport, auto&& change) {
    Options& options = networks.emplace_back(test_options());
    options.transport = transport;
    change(options);
  };
  if (soak_run().is_rdma) {
    for (const char* signal : {"immediate", "ordered", "completion"}) {
      add("rc", [&](Options& options) { options.rc_signal = signal; });
    }
    return networks;
  }
  for (const char* personality : {"rc", "srd", "relaxed"}) {
    add("emulated", [&](Options& options) { options.emulated_personality = personality; });
  }
  for (const char* unsolicited : {"auto", "off"}) {
    add("srd", [&](Options& options) {
      options.verbs_library = options.efa_library = FakeVerbs::library();
      options.srd_unsolicited = unsolicited;
    });
  }
  return networks;
}

inline std::string network_text(const Options& options) {
  return options.transport == "emulated" ? "emulated " + options.emulated_personality
         : options.transport == "srd"    ? "srd, unsolicited receives " + options.srd_unsolicited
                                         : "rc, signals by " + options.rc_signal;
}

// Over soft-RoCE each node has a device of its own, as long as there are some.
inline void use_device_of_node(int32_t node, Options& options) {
  if (options.transport == "rc") options.rc_device = fmt::format("rxe{}", node % 8);
}

// The node of a rank of that layout.
inline int32_t node_of(const std::vector<int32_t>& layout, int32_t rank) {
  int32_t node = 0;
  for (; rank >= layout[static_cast<size_t>(node)]; ++node) rank -= layout[static_cast<size_t>(node)];
  return node;
}

}  // namespace tilewire

#include "device/comm/call_setup.cuh"

#include <algorithm>
#include <iterator>

namespace tilewire {

void place_call(DeviceTables& tables, const DeviceRank& rank, int32_t ctas, CallFrame& frame, CallView& call) {
  Topology& t = frame.topology;
  const auto ranks = static_cast<size_t>(t.ranks);
  tables.place(t.node_of_rank, ranks);
  tables.place(t.local_of_rank, ranks);
  tables.place(t.node_first, static_cast<size_t>(t.nodes) + 1);
  tables.place(t.rank_in_node, ranks);
  call.arenas = rank.arenas.data();
  tables.place(call.arenas, ranks);
  tables.place_zeroed(call.finished, static_cast<size_t>(ctas));
  call.state = rank.state;
  call.control_page = rank.control_page;
  std::copy(std::begin(rank.rings), std::end(rank.rings), call.rings);
  call.arrivals = rank.arrivals;
  std::byte* own_arena = rank.arenas.at(static_cast<size_t>(frame.me.value));
  call.limits = {.abort_word = reinterpret_cast<uint64_t*>(own_arena + ControlPage::kAbort),
                 .fault = rank.fault,
                 .timeout_ns = rank.timeout_ns,
                 .op = rank.op,
                 .rank = frame.me.value};
}

}  // namespace tilewire

#include "schedule/simulator/link_use.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace tilewire {
namespace {

class Ports {
 public:
  Ports(const SimProgram& program, const Machine& machine)
      : machine_(machine), busy_s_(static_cast<size_t>(program.ranks()) * kDirections) {}

  void add(Rank rank, const Agent& agent, const SimCall& call) {
    std::vector<Aligned> cursor_room(static_cast<size_t>(agent.table->cursor_bytes) / sizeof(Aligned));
    auto* cursor = reinterpret_cast<std::byte*>(cursor_room.data());
    agent.table->start(call.model(agent), cursor);
    while (agent.table->next(cursor)) add_work(rank, agent, call.model(agent), cursor);
  }
  double most_s() const { return *std::max_element(busy_s_.begin(), busy_s_.end()); }

 private:
  static constexpr size_t kDirections = 4;  // node out, node in, network out, network in
  struct alignas(kCursorAlign) Aligned {
    std::byte bytes[kCursorAlign];
  };

  void add_work(Rank rank, const Agent& agent, const std::byte* model, const std::byte* cursor) {
    const Command* command = agent.table->command == nullptr ? nullptr : agent.table->command(model, cursor);
    if (command != nullptr && command->kind == CommandKind::write) {
      add_bytes(rank, command->peer, int64_t{command->units} * kWireUnitBytes, 2, machine_.network_bytes_per_s);
    }
    touch_.clear();
    if (agent.table->touch != nullptr) agent.table->touch(model, cursor, touch_);
    for (const Access& a : touch_.accesses()) {
      if (a.kind == Access::Kind::read || a.to.rank == rank) continue;
      add_bytes(rank, a.to.rank, a.to.bytes, 0, machine_.node_bytes_per_s);
    }
  }
  void add_bytes(Rank from, Rank to, int64_t bytes, size_t kind, double rate) {
    const double seconds = static_cast<double>(bytes) / rate;
    busy_s_[static_cast<size_t>(from.value) * kDirections + kind] += seconds;
    busy_s_[static_cast<size_t>(to.value) * kDirections + kind + 1] += seconds;
  }

  Machine machine_;
  std::vector<double> busy_s_;  // [rank][direction]
  Touch touch_;
};

// Begin and done hand over records and words only.
bool moves_data(const Agent& agent) {
  return agent.place.stage == kOpStage && std::string(agent.place.role) != "begin";
}

}  // namespace

double busiest_link_s(const SimProgram& program, const Machine& machine) {
  Ports ports(program, machine);
  const SimCall& call = program.calls.front();
  for (int32_t r = 0; r < program.ranks(); ++r) {
    for (const Agent& agent : call.agents(Rank{r})) {
      if (moves_data(agent)) ports.add(Rank{r}, agent, call);
    }
  }
  return ports.most_s();
}

}  // namespace tilewire

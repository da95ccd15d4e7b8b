#include "schedule/simulator/sim_program.h"

#include <algorithm>

#include "base/check.h"

namespace tilewire {

void SimCall::move_halves(int64_t half0_bytes, int64_t half1_bytes) {
  has_moved_halves_ = true;
  moved_halves_[0] = half0_bytes;
  moved_halves_[1] = half1_bytes;
}

void SimCall::add_agent(Rank rank, Agent agent) {
  TILEWIRE_CHECK_LT(agent.place.stage, kStages, "role {}", agent.place.role);
  std::vector<Agent>& mine = agents_[static_cast<size_t>(rank.value)];
  const auto behind = std::upper_bound(mine.begin(), mine.end(), agent.place.stage,
                                       [](int32_t stage, const Agent& a) { return stage < a.place.stage; });
  agent.cursor_offset = cursor_bytes(rank);
  mine.insert(behind, agent);
}

int64_t SimCall::cursor_bytes(Rank rank) const {
  int64_t end = 0;
  for (const Agent& a : agents(rank)) {
    end = std::max(end, a.cursor_offset + int64_t{a.table->cursor_bytes} * cursor_count(a.place));
  }
  return end;
}

void SimCall::remove(const std::string& role) {
  for (std::vector<Agent>& mine : agents_) {
    mine.erase(std::remove_if(mine.begin(), mine.end(), [&](const Agent& a) { return role == a.place.role; }),
               mine.end());
  }
}

SimCall& SimProgram::add_call() {
  calls.emplace_back(ranks());
  return calls.back();
}

}  // namespace tilewire

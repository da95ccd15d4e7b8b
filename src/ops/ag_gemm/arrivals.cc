#include "ops/ag_gemm/arrivals.h"

#include <algorithm>

#include "schedule/transfer_clock.h"

namespace tilewire::ag_gemm {

std::vector<std::vector<double>> expected_arrivals_s(const Schedule& s, Node node, const Machine& machine) {
  const TransferClock<Schedule> clock(s, node, machine);
  std::vector<std::vector<double>> arrivals_s(static_cast<size_t>(s.topology().ranks_on(node)));
  for (size_t l = 0; l < arrivals_s.size(); ++l) {
    const Rank rank = s.topology().rank_at(node, LocalRank{static_cast<int32_t>(l)});
    arrivals_s[l].reserve(static_cast<size_t>(s.chunks.total_chunks()));
    for (int32_t g = 0; g < s.chunks.total_chunks(); ++g) {
      const ChunkRef chunk = s.chunks.at(g);
      // Own rows that are used where they are need nobody to bring them.
      const bool is_in_place = chunk.source == rank && (s.own_in_place || (s.own_in_user && rank == s.me()));
      arrivals_s[l].push_back(is_in_place ? 0 : clock.at_s(rank, s.buffers.shard_arrived(chunk)));
    }
  }
  return arrivals_s;
}

double last_arrival_s(const std::vector<std::vector<double>>& arrivals_s) {
  double last_s = 0;
  for (const std::vector<double>& rank : arrivals_s) {
    for (const double at_s : rank) last_s = std::max(last_s, at_s);
  }
  return last_s;
}

}  // namespace tilewire::ag_gemm

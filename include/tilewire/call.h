// What the calls of all operations share: how row counts become known, and what a call reports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tilewire {

// How many rows each rank brings.
struct RowCounts {
  enum class From {
    same,      // all ranks bring as many as this one
    list,      // `counts`, the same list on all ranks
    exchange,  // counts travel before each call over the control connection, host only: one round trip, and one more
               // where the ranks have to agree on counts that are new
  };
  From from = From::same;
  std::vector<int64_t> counts;  // of every rank, by rank; empty unless they are a list
};

struct CallReport {
  double seconds = 0;
  double predicted_s = 0;
  int64_t copy_bytes = 0;     // inside this rank
  int64_t node_bytes = 0;     // to ranks of the own node
  int64_t network_bytes = 0;  // to ranks of other nodes
  std::string plan_json;
};

}  // namespace tilewire

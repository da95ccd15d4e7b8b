// What the calls of all operations share: how row counts become known, what a call reports, and plans made without a
// cluster.
#pragma once

#include <tilewire/communicator.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tilewire {

// How a rank knows the row counts of the others.
enum class RowsFrom {
  same,      // all ranks bring as many rows as this one
  list,      // given as a list, the same on all ranks
  exchange,  // exchanged before each call, over the control connection: one round trip, host only
};

struct CallReport {
  double seconds = 0;
  double predicted_s = 0;
  int64_t copy_bytes = 0;     // inside this rank
  int64_t node_bytes = 0;     // to ranks of the own node
  int64_t network_bytes = 0;  // to ranks of other nodes
  std::string plan_json;
};

// The machine that a plan is asked for; an operation's query adds the shape.
struct MachineQuery {
  std::vector<int32_t> ranks_per_node{1};
  int32_t rank = 0;
  int32_t workers = 1;
  double worker_tflops = 0;       // 0: the defaults of the cost model
  double node_gb_per_s = 0;       // GB/s out of a rank to its local peers
  double network_gbit_per_s = 0;  // Gbit/s out of a rank to other nodes
  double network_latency_us = 0;
  bool wants_timeline = false;
};

struct PlanAnswer {
  std::string plan_json;
  std::string explanation;  // the plan, its predicted time, and why the other candidates lost
  double predicted_s = 0;
  double compute_s = 0;
  double communication_s = 0;
  double simulated_s = 0;           // by the discrete-event simulation of the same roles
  std::vector<WorkEvent> timeline;  // of all ranks, from the simulation
};

}  // namespace tilewire

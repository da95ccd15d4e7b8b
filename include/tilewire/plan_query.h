// Plans made without a cluster: the machine that is asked about, and the answer. What is planned is the operation's.
#pragma once

#include <tilewire/communicator.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tilewire {

// The machine that a plan is asked for; an operation's query adds the shape. Rates and latencies: 0 stands for the
// default of the cost model; anything else must be from 1e-9 to 1e9.
struct MachineQuery {
  std::vector<int32_t> ranks_per_node{1};
  int32_t rank = 0;
  int32_t workers = 1;  // at least 1
  double worker_tflops = 0;
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

// The constants of the planner's cost model: what a rank's hardware does. Seconds and bytes a second. Defaults fit CPU
// ranks on one small machine; a tuner or a user may set them, and all ranks must use the same.
#pragma once

namespace tilewire {

struct Machine {
  double worker_flops = 2.4e10;      // of one compute worker
  double copy_bytes_per_s = 6e9;     // within a rank
  double node_bytes_per_s = 5e9;     // out of one rank to its local peers, all together
  double network_bytes_per_s = 4e9;  // out of one rank's NICs
  double network_latency_s = 20e-6;
  double node_latency_s = 5e-6;  // of a flag between ranks of a node
  double step_s = 3e-6;          // a piece of work of any role: its wait, its signal
};

}  // namespace tilewire

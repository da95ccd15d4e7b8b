// Plans made without a cluster: the machine that is asked about, and the answer. What is planned is the operation's.
#pragma once

#include <tilewire/communicator.h>
#include <tilewire/export.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tilewire {

// A machine that plans can be asked for by name.
struct NamedMachine {
  std::string name;
  std::string purpose;
  int32_t workers = 1;
  std::map<std::string, double> numbers;  // by their names in MachineQuery
};

// All of them; the first one, "cpu", is what is asked for unless a query says another.
TILEWIRE_API std::vector<NamedMachine> machines();

// The machine that a plan is asked for; an operation's query adds the shape. A number that is not set is that of the
// named machine. Rates are from 1e-9 to 1e9, times from 0 to 1e9.
struct MachineQuery {
  std::vector<int32_t> ranks_per_node{1};
  int32_t rank = 0;
  std::string machine = "cpu";                 // a name of machines()
  std::optional<int32_t> workers{};            // at least 1
  std::optional<double> worker_tflops{};       // of one worker
  std::optional<double> copy_gb_per_s{};       // within a rank, for each agent that reads, writes or copies
  std::optional<double> node_gb_per_s{};       // out of a rank to its local peers, all together; into one likewise
  std::optional<double> node_latency_us{};     // of a signal between ranks of a node
  std::optional<double> network_gbit_per_s{};  // out of a rank to other nodes; into one likewise
  std::optional<double> network_latency_us{};  // from one node to another
  std::optional<double> step_us{};             // a piece of work of any role: its wait, its signal
  std::optional<double> command_us{};          // of a rank's proxy, for each command and each arrival
  bool wants_timeline = false;
};

struct PlanAnswer {
  std::string plan_json;
  std::string explanation;  // the plan, its predicted time, why the other candidates lost, and the machine taken
  double predicted_s = 0;
  double compute_s = 0;
  double communication_s = 0;
  double simulated_s = 0;           // by the discrete-event simulation of the same roles
  std::vector<WorkEvent> timeline;  // of all ranks, from the simulation
};

}  // namespace tilewire

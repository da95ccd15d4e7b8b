#include "api/machine_numbers.h"

#include <fmt/format.h>

#include <iterator>

namespace tilewire {
namespace {

constexpr int32_t kMostWorkers = 4096;            // as the option of a communicator allows
constexpr double kLeastRate = 1e-9, kMost = 1e9;  // what follows of them stays finite

struct Kind {
  const char* name;
  const char* purpose;
  int32_t workers;
  Machine machine;
};
constexpr Kind kKinds[] = {
    {"cpu", "ranks on cores of one small machine, which plays all nodes", 1, Machine{}},
    {"h200",
     "an H200 a rank, whose workers are its SMs, NVLink and a NIC of 400 Gbit/s for each, of which 360 are left for "
     "data; latencies of "
     "the network are estimated",
     kH200Workers, kH200Machine},
};

// A number of a query, and what it is in the cost model.
struct Number {
  const char* name;
  std::optional<double> MachineQuery::*asked;
  double Machine::*value;
  double unit;
  double least;
};
constexpr Number kNumbers[] = {
    {"worker_tflops", &MachineQuery::worker_tflops, &Machine::worker_flops, 1e12, kLeastRate},
    {"copy_gb_per_s", &MachineQuery::copy_gb_per_s, &Machine::copy_bytes_per_s, 1e9, kLeastRate},
    {"node_gb_per_s", &MachineQuery::node_gb_per_s, &Machine::node_bytes_per_s, 1e9, kLeastRate},
    {"node_latency_us", &MachineQuery::node_latency_us, &Machine::node_latency_s, 1e-6, 0},
    {"network_gbit_per_s", &MachineQuery::network_gbit_per_s, &Machine::network_bytes_per_s, 1e9 / 8, kLeastRate},
    {"network_latency_us", &MachineQuery::network_latency_us, &Machine::network_latency_s, 1e-6, 0},
    {"step_us", &MachineQuery::step_us, &Machine::step_s, 1e-6, 0},
    {"command_us", &MachineQuery::command_us, &Machine::command_s, 1e-6, 0},
};

[[noreturn]] void refuse_machine(const char* what, std::string values, std::string limit) {
  throw Error(ErrorKind::invalid_argument,
              {.what = what, .where = "plan", .values = std::move(values), .limit = std::move(limit)});
}

const Kind& find_kind(const std::string& name) {
  std::string known;
  for (const Kind& kind : kKinds) {
    if (name == kind.name) return kind;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", kind.name);
  }
  refuse_machine("there is no such machine", fmt::format("machine = '{}'", name), "must be one of " + known);
}

// A number that is none (NaN) is in no range.
double checked(const Number& number, double asked) {
  if (!(asked >= number.least && asked <= kMost)) {
    refuse_machine("a number of the machine cannot be", fmt::format("{} = {}", number.name, asked),
                   fmt::format("from {:g} to {:g}", number.least, kMost));
  }
  return asked * number.unit;
}

int32_t workers_of(const MachineQuery& query, const Kind& kind) {
  const int32_t workers = query.workers.value_or(kind.workers);
  if (workers < 1 || workers > kMostWorkers) {
    refuse_machine("there cannot be so many workers", fmt::format("workers = {}", workers),
                   fmt::format("1 to {}", kMostWorkers));
  }
  return workers;
}

// Of the machine, in the units of queries; rounded, for a number that was not given went through other units.
std::string shown(const Machine& machine, double Machine::*value) {
  for (const Number& number : kNumbers) {
    if (number.value == value) return fmt::format("{:.6g}", machine.*value / number.unit);
  }
  return "";
}

std::string text_of(const AskedMachine& asked, const char* name, const std::string& given) {
  const auto number = [&](double Machine::*value) { return shown(asked.machine, value); };
  std::string text = fmt::format("machine: {}{}\n", name, given.empty() ? "" : ", with " + given + " as given");
  text += fmt::format("  {} worker{} of {} TFLOP/s; copies within a rank at {} GB/s\n", asked.workers,
                      asked.workers == 1 ? "" : "s, each", number(&Machine::worker_flops),
                      number(&Machine::copy_bytes_per_s));
  text += fmt::format("  within a node {} GB/s, {} us; between nodes {} Gbit/s, {} us\n",
                      number(&Machine::node_bytes_per_s), number(&Machine::node_latency_s),
                      number(&Machine::network_bytes_per_s), number(&Machine::network_latency_s));
  text += fmt::format("  a step of a role {} us; a command of a proxy {} us\n", number(&Machine::step_s),
                      number(&Machine::command_s));
  return text;
}

}  // namespace

std::vector<NamedMachine> machines() {
  std::vector<NamedMachine> found;
  found.reserve(std::size(kKinds));
  for (const Kind& kind : kKinds) {
    found.push_back({.name = kind.name, .purpose = kind.purpose, .workers = kind.workers, .numbers = {}});
    for (const Number& number : kNumbers) {
      found.back().numbers[number.name] = kind.machine.*number.value / number.unit;
    }
  }
  return found;
}

AskedMachine machine_of(const MachineQuery& query) {
  const Kind& kind = find_kind(query.machine);
  AskedMachine asked{.machine = kind.machine, .workers = workers_of(query, kind), .text = ""};
  std::string given = query.workers ? "workers" : "";
  for (const Number& number : kNumbers) {
    if (!(query.*number.asked)) continue;
    asked.machine.*number.value = checked(number, *(query.*number.asked));
    given += fmt::format("{}{}", given.empty() ? "" : ", ", number.name);
  }
  asked.text = text_of(asked, kind.name, given);
  return asked;
}

}  // namespace tilewire

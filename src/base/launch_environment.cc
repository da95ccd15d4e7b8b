#include "base/launch_environment.h"

#include "base/ancestor.h"
#include "base/host_list.h"
#include "base/number_text.h"
#include "base/options.h"

#include <fmt/format.h>
#include <tilewire/error.h>
#include <unistd.h>

#include <optional>

namespace tilewire {
namespace {

constexpr int32_t kMostRanks = 1 << 20;
constexpr std::string_view kHydraProxy = "hydra_pmi_proxy";  // of MPICH, and of what is made from it

// Names of one launcher's variables; an empty name is one that it does not have.
struct Names {
  const char* source;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
};
constexpr Names kTilewire{"tilewire", "TILEWIRE_RANK", "TILEWIRE_WORLD_SIZE", "", ""};
constexpr Names kTorchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kOpenMpi{"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                         "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kMpich{"mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
constexpr Names kSlurmStep{"slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""};
constexpr Names kSlurmJob{"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""};

// The text of a variable; an empty one counts as unset.
std::string text_of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

[[noreturn]] void refuse(std::string_view source, const std::string& values, const std::string& limit) {
  throw Error(ErrorKind::invalid_argument,
              {.what = fmt::format("the variables of {} are not usable", source),
               .where = "launch environment",
               .values = values,
               .limit = limit,
               .advice = "start the processes with one launcher, or pass rank, world_size and rendezvous"});
}

int32_t number_of(const Environment& environment, const Names& names, const std::string& name, int32_t otherwise) {
  const std::string text = text_of(environment, name);
  if (text.empty()) return otherwise;
  const auto value = parse_integer(text);
  if (!value || *value < 0 || *value > kMostRanks) {
    refuse(names.source, fmt::format("{} = '{}'", name, text), fmt::format("must be a number, 0 to {}", kMostRanks));
  }
  return static_cast<int32_t>(*value);
}

void check_within(const Names& names, const char* rank_name, int32_t rank, const std::string& size_name, int32_t size) {
  if (rank < size) return;
  refuse(names.source, fmt::format("{} = {}, {} = {}", rank_name, rank, size_name, size),
         fmt::format("{} must be less than {}", rank_name, size_name));
}

[[noreturn]] void refuse_half(const Environment& environment, std::string_view source, const char* there,
                              const char* missing) {
  refuse(source, fmt::format("{} = {}, {} is not set", there, text_of(environment, there), missing),
         "both or neither must be");
}

// Whether a variable is a number that only a job of several ranks has: `least` or more.
bool says_several(const Environment& environment, const char* name, int64_t least) {
  const auto value = parse_integer(text_of(environment, name));
  return value && *value >= least;
}

// `is_meant`: something else shows that processes are to meet, so that even rank 0 of 1 is half a launcher.
void check_whole(const Environment& environment, const Names& names, bool is_meant) {
  const bool has_rank = !text_of(environment, names.rank).empty();
  const bool has_size = !text_of(environment, names.world_size).empty();
  if (has_rank == has_size) return;
  if (has_rank && (is_meant || says_several(environment, names.rank, 1))) {
    refuse_half(environment, names.source, names.rank, names.world_size);
  }
  if (has_size && (is_meant || says_several(environment, names.world_size, 2))) {
    refuse_half(environment, names.source, names.world_size, names.rank);
  }
}

std::optional<LaunchEnvironment> read_names(const Environment& environment, const Names& names) {
  if (text_of(environment, names.rank).empty() || text_of(environment, names.world_size).empty()) return std::nullopt;
  LaunchEnvironment launch;
  launch.source = names.source;
  launch.rank = number_of(environment, names, names.rank, 0);
  launch.world_size = number_of(environment, names, names.world_size, 1);
  launch.local_rank = number_of(environment, names, names.local_rank, -1);
  launch.local_world_size = number_of(environment, names, names.local_world_size, -1);
  check_within(names, names.rank, launch.rank, names.world_size, launch.world_size);
  if (launch.local_rank >= 0 && launch.local_world_size >= 0) {
    check_within(names, names.local_rank, launch.local_rank, names.local_world_size, launch.local_world_size);
  }
  if (launch.local_world_size > launch.world_size) {
    refuse(names.source,
           fmt::format("{} = {}, {} = {}", names.local_world_size, launch.local_world_size, names.world_size,
                       launch.world_size),
           "a node cannot have more ranks than the job");
  }
  return launch;
}

// A port outside the usual ephemeral range that all ranks derive from the job's name alone.
int derived_port(std::string_view job) {
  uint64_t hash = 1469598103934665603ULL;  // FNV-1a: std::hash may differ between hosts
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return static_cast<int>(20000 + hash % 10000);
}

// Ranks that are all on one host meet on its loopback.
void meet_on_this_host(LaunchEnvironment& launch) {
  const bool one_host = launch.local_world_size == launch.world_size;
  if (one_host && !launch.job.empty()) launch.rendezvous = fmt::format("127.0.0.1:{}", derived_port(launch.job));
}

void add_master(const Environment& environment, LaunchEnvironment& launch) {
  const std::string address = text_of(environment, "MASTER_ADDR");
  const std::string port = text_of(environment, "MASTER_PORT");
  if (!address.empty() && !port.empty()) launch.rendezvous = address + ":" + port;
  if (address.empty() != port.empty()) launch.lacking = address.empty() ? "MASTER_ADDR" : "MASTER_PORT";
}

void finish_torchrun(const Environment& environment, LaunchEnvironment& launch) {
  add_master(environment, launch);
  launch.job = text_of(environment, "TORCHELASTIC_RUN_ID");
}

// MPICH's own variables do not name the job; the one process that starts its ranks of a host does.
void finish_mpi(const Environment& environment, const FindAncestor& find_ancestor, LaunchEnvironment& launch) {
  for (const char* name :
       {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid", "PMI_PORT", "PMI_KVS", "HYDRA_JOBID"}) {
    const std::string text = text_of(environment, name);
    if (launch.job.empty() && !text.empty()) launch.job = fmt::format("{}-{}", launch.source, text);
  }
  const std::string proxy = launch.job.empty() ? find_ancestor(kHydraProxy) : "";
  if (!proxy.empty()) launch.job = fmt::format("{}-{}", launch.source, proxy);
  meet_on_this_host(launch);
  if (launch.rendezvous.empty()) add_master(environment, launch);
}

void finish_slurm(const Environment& environment, const Names& names, LaunchEnvironment& launch) {
  std::string tasks = text_of(environment, "SLURM_STEP_TASKS_PER_NODE");
  if (tasks.empty()) tasks = text_of(environment, "SLURM_TASKS_PER_NODE");
  const int32_t node = number_of(environment, names, "SLURM_NODEID", -1);
  if (!tasks.empty() && node >= 0) {
    const std::vector<int32_t> counts = expand_tasks_per_node(tasks);
    if (node < static_cast<int32_t>(counts.size())) launch.local_world_size = counts[static_cast<size_t>(node)];
  } else {
    launch.local_world_size = number_of(environment, names, "SLURM_NTASKS_PER_NODE", -1);
  }
  const std::string job = text_of(environment, "SLURM_JOB_ID");
  if (!job.empty()) launch.job = fmt::format("slurm-{}.{}", job, text_of(environment, "SLURM_STEP_ID"));
  add_master(environment, launch);
  const std::string hosts = text_of(environment, "SLURM_STEP_NODELIST");
  if (launch.rendezvous.empty() && !hosts.empty() && !launch.job.empty()) {
    launch.rendezvous = fmt::format("{}:{}", expand_host_list(hosts).at(0), derived_port(launch.job));
  }
}

}  // namespace

LaunchEnvironment read_launch_environment(const Environment& environment, const FindAncestor& find_ancestor) {
  if (auto launch = read_names(environment, kTilewire)) {
    launch->rendezvous = text_of(environment, "TILEWIRE_RENDEZVOUS");
    launch->job = text_of(environment, "TILEWIRE_JOB");
    return *launch;
  }
  const bool has_master = !text_of(environment, "MASTER_ADDR").empty() || !text_of(environment, "MASTER_PORT").empty();
  check_whole(environment, kTorchrun, has_master);
  if (auto launch = read_names(environment, kTorchrun)) {
    finish_torchrun(environment, *launch);
    return *launch;
  }
  // srun sets the two names of MPICH too where it speaks PMI, and no others of it.
  const bool is_srun = text_of(environment, kMpich.local_world_size).empty() &&
                       !text_of(environment, kSlurmStep.rank).empty() &&
                       !text_of(environment, "SLURM_STEP_NODELIST").empty();
  for (const Names& names : {kOpenMpi, kMpich}) {
    if (is_srun && names.source == kMpich.source) continue;
    check_whole(environment, names, true);
    if (auto launch = read_names(environment, names)) {
      finish_mpi(environment, find_ancestor, *launch);
      return *launch;
    }
  }
  if (text_of(environment, kSlurmStep.rank).empty()) check_whole(environment, kSlurmStep, false);
  if (auto launch = read_names(environment, kSlurmStep)) {
    finish_slurm(environment, kSlurmStep, *launch);
    return *launch;
  }
  if (!text_of(environment, "SLURM_STEP_NODELIST").empty()) {
    if (auto launch = read_names(environment, kSlurmJob)) {
      finish_slurm(environment, kSlurmJob, *launch);
      return *launch;
    }
  }
  // In a batch script, which is one process, it is 0.
  if (says_several(environment, "SLURM_PROCID", 1)) {
    refuse_half(environment, "slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
  }
  return {};
}

LaunchEnvironment launch_environment() {
  return read_launch_environment(process_environment(),
                                 [](std::string_view program) { return ancestor_running(program, ::getpid()); });
}

}  // namespace tilewire

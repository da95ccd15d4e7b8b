// Who this process is according to the launcher that started it.
#pragma once

#include <tilewire/options.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace tilewire {

struct LaunchEnvironment {
  // "tilewire", "torchrun", "openmpi", "mpich", "slurm", or "none" when no launcher is seen. The first of this order
  // that is there counts (mpirun inside a Slurm job is openmpi; TILEWIRE_RANK stands above all).
  std::string source = "none";
  int32_t rank = 0;
  int32_t world_size = 1;
  int32_t local_rank = -1;        // -1: the launcher does not say
  int32_t local_world_size = -1;  // -1: the launcher does not say
  std::string rendezvous;         // "host:port" known to all ranks of the job, "" when the launcher gives none
  std::string lacking;            // the variable that is missing of two that give a place to meet, "" when none is
  std::string job;                // a name that this job's processes share and others do not, "" when there is none
};

// A name for the process that runs a program and has started this one, "" when there is none.
using FindAncestor = std::function<std::string(std::string_view program)>;

// Reads the variables of all known launchers. Throws Error(invalid_argument) naming the variable for a number that is
// none, ranks and sizes that contradict each other, or half of what a launcher sets: each process would be a job of its
// own, with its own rows alone. A half that means one rank is none.
//
// What counts as seen: tilewire: TILEWIRE_RANK and TILEWIRE_WORLD_SIZE; torchrun: RANK and WORLD_SIZE; openmpi:
// OMPI_COMM_WORLD_RANK and _SIZE; mpich: PMI_RANK and PMI_SIZE; slurm: SLURM_PROCID with SLURM_STEP_NUM_TASKS, or with
// SLURM_NTASKS when SLURM_STEP_NODELIST shows that srun started this process (a batch script has SLURM_NTASKS and
// SLURM_PROCID = 0 too, and is one process).
LaunchEnvironment read_launch_environment(const Environment& environment, const FindAncestor& find_ancestor);

// The same of this process.
LaunchEnvironment launch_environment();

}  // namespace tilewire

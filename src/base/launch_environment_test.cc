#include "base/launch_environment.h"

#include "base/host_list.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

namespace tilewire {
namespace {

using Hosts = std::vector<std::string>;

Environment merged(Environment a, const Environment& b) {
  a.insert(b.begin(), b.end());
  return a;
}

const Environment kTorchrun{{"RANK", "5"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "4"},
                            {"MASTER_ADDR", "node-a"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_RUN_ID", "run-17"}};
const Environment kOpenMpi{{"OMPI_COMM_WORLD_RANK", "2"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                           {"PMIX_NAMESPACE", "3141@1"}};
// As mpirun of MPICH 5.0.1 sets them; 4.0 has the same.
const Environment kMpichOnOneHost{{"PMI_RANK", "1"},
                                  {"PMI_SIZE", "2"},
                                  {"PMI_FD", "11"},
                                  {"PMI_HOSTNAME", "vm"},
                                  {"MPI_LOCALRANKID", "1"},
                                  {"MPI_LOCALNRANKS", "2"},
                                  {"GFORTRAN_UNBUFFERED_PRECONNECTED", "y"}};
const Environment kMpich{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}};
const Environment kSlurm{{"SLURM_PROCID", "6"},
                         {"SLURM_NTASKS", "7"},
                         {"SLURM_STEP_NUM_TASKS", "7"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_NODEID", "3"},
                         {"SLURM_JOB_ID", "4711"},
                         {"SLURM_STEP_ID", "2"},
                         {"SLURM_STEP_NODELIST", "gpu[07-09,12]"},
                         {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}};

std::string no_ancestor(std::string_view) { return ""; }

LaunchEnvironment launch_of(const Environment& environment) {
  return read_launch_environment(environment, no_ancestor);
}

// What is said of an environment, "accepted" where nothing is.
std::string refusal_of_launch(const Environment& environment) {
  try {
    launch_of(environment);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(LaunchEnvironment, NoLauncherIsOneRank) {
  const LaunchEnvironment launch = launch_of({{"PATH", "/bin"}});
  EXPECT_EQ(launch.source, "none");
  EXPECT_EQ(launch.rank, 0);
  EXPECT_EQ(launch.world_size, 1);
}

TEST(LaunchEnvironment, Torchrun) {
  const LaunchEnvironment launch = launch_of(kTorchrun);
  EXPECT_EQ(launch.source, "torchrun");
  EXPECT_EQ(launch.rank, 5);
  EXPECT_EQ(launch.world_size, 8);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.local_world_size, 4);
  EXPECT_EQ(launch.rendezvous, "node-a:29500");
  EXPECT_EQ(launch.job, "run-17");
}

TEST(LaunchEnvironment, OpenMpiOnOneHostMeetsOnItsLoopback) {
  const LaunchEnvironment launch = launch_of(kOpenMpi);
  EXPECT_EQ(launch.source, "openmpi");
  EXPECT_EQ(launch.rank, 2);
  EXPECT_EQ(launch.local_world_size, 4);
  EXPECT_EQ(launch.job, "openmpi-3141@1");
  EXPECT_EQ(launch.rendezvous.rfind("127.0.0.1:2", 0), 0U) << launch.rendezvous;
  Environment other = kOpenMpi;
  other["PMIX_NAMESPACE"] = "3142@1";
  EXPECT_NE(launch_of(other).rendezvous, launch.rendezvous) << "two jobs would meet each other";
}

TEST(LaunchEnvironment, OpenMpiOnTwoHostsDoesNotMeetOnTheLoopback) {
  Environment two_hosts = kOpenMpi;
  two_hosts["OMPI_COMM_WORLD_LOCAL_RANK"] = "0";
  two_hosts["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  EXPECT_EQ(launch_of(two_hosts).rendezvous, "");
}

TEST(LaunchEnvironment, MpichOnTwoHostsLeavesTheRendezvousOpen) {
  const LaunchEnvironment launch = launch_of(kMpich);
  EXPECT_EQ(launch.source, "mpich");
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.world_size, 2);
  EXPECT_EQ(launch.local_rank, 0);
  EXPECT_EQ(launch.rendezvous, "");
}

TEST(LaunchEnvironment, MpichOnOneHostMeetsByTheProcessThatHasStartedItsRanks) {
  const auto started_by = [](const std::string& id) {
    return read_launch_environment(kMpichOnOneHost,
                                   [&](std::string_view program) { return program == "hydra_pmi_proxy" ? id : ""; });
  };
  const LaunchEnvironment launch = started_by("19350-4711");
  EXPECT_EQ(launch.job, "mpich-19350-4711");
  EXPECT_EQ(launch.rendezvous.rfind("127.0.0.1:2", 0), 0U) << launch.rendezvous;
  EXPECT_NE(started_by("19351-4711").rendezvous, launch.rendezvous) << "two jobs would meet each other";
  EXPECT_EQ(launch_of(kMpichOnOneHost).rendezvous, "") << "without a name of the job every job would meet there";
}

TEST(LaunchEnvironment, SlurmMeetsOnTheFirstHostOfTheStep) {
  const LaunchEnvironment launch = launch_of(kSlurm);
  EXPECT_EQ(launch.source, "slurm");
  EXPECT_EQ(launch.rank, 6);
  EXPECT_EQ(launch.world_size, 7);
  EXPECT_EQ(launch.local_world_size, 1);
  EXPECT_EQ(launch.job, "slurm-4711.2");
  EXPECT_EQ(launch.rendezvous.rfind("gpu07:2", 0), 0U) << launch.rendezvous;
  Environment neighbour = kSlurm;
  neighbour["SLURM_PROCID"] = "0";
  neighbour["SLURM_NODEID"] = "0";
  EXPECT_EQ(launch_of(neighbour).rendezvous, launch.rendezvous);
  EXPECT_EQ(launch_of(neighbour).local_world_size, 2);
}

TEST(LaunchEnvironment, ABatchScriptWithoutSrunIsOneProcess) {
  const Environment batch{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "1"}};
  EXPECT_EQ(launch_of(batch).source, "none");
}

TEST(LaunchEnvironment, OldSlurmWithoutStepTasksUsesTheJobs) {
  Environment old = kSlurm;
  old.erase("SLURM_STEP_NUM_TASKS");
  EXPECT_EQ(launch_of(old).world_size, 7);
}

TEST(LaunchEnvironment, TheInnermostLauncherCounts) {
  EXPECT_EQ(launch_of(merged(kOpenMpi, kSlurm)).source, "openmpi");
  EXPECT_EQ(launch_of(merged(kTorchrun, kSlurm)).source, "torchrun");
  const Environment own{{"TILEWIRE_RANK", "1"},
                        {"TILEWIRE_WORLD_SIZE", "3"},
                        {"TILEWIRE_RENDEZVOUS", "127.0.0.1:9"},
                        {"TILEWIRE_JOB", "mine"}};
  const LaunchEnvironment launch = launch_of(merged(own, kTorchrun));
  EXPECT_EQ(launch.source, "tilewire");
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.rendezvous, "127.0.0.1:9");
  EXPECT_EQ(launch.job, "mine");
}

TEST(LaunchEnvironment, SrunThatSpeaksPmiIsSlurm) {
  EXPECT_EQ(launch_of(merged({{"PMI_RANK", "6"}, {"PMI_SIZE", "7"}}, kSlurm)).source, "slurm");
  EXPECT_EQ(launch_of(merged(kMpichOnOneHost, kSlurm)).source, "mpich") << "its own mpirun inside a job of Slurm";
}

TEST(LaunchEnvironment, HalfALauncherThatMeansOneRankIsNone) {
  for (const Environment& environment : std::vector<Environment>{{{"RANK", "0"}},
                                                                 {{"WORLD_SIZE", "1"}},
                                                                 {{"RANK", "high"}},
                                                                 {{"RANK", ""}, {"WORLD_SIZE", "1"}},
                                                                 {{"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "1"}}}) {
    EXPECT_EQ(launch_of(environment).source, "none") << environment.begin()->first;
  }
}

TEST(LaunchEnvironment, HalfALauncherThatMeansSeveralRanksIsRefused) {
  EXPECT_NE(refusal_of_launch({{"WORLD_SIZE", "2"}}).find("WORLD_SIZE = 2, RANK is not set"), std::string::npos);
  EXPECT_NE(refusal_of_launch({{"RANK", "1"}}).find("RANK = 1, WORLD_SIZE is not set"), std::string::npos);
  EXPECT_NE(refusal_of_launch({{"RANK", "1"}, {"WORLD_SIZE", ""}}).find("WORLD_SIZE is not set"), std::string::npos);
  EXPECT_NE(refusal_of_launch({{"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "1"}}).find("SLURM_STEP_NUM_TASKS is not set"),
            std::string::npos);
  EXPECT_NE(refusal_of_launch({{"SLURM_STEP_NUM_TASKS", "2"}}).find("SLURM_PROCID is not set"), std::string::npos);
}

TEST(LaunchEnvironment, TheMissingOneOfAPlaceToMeetIsNamed) {
  Environment environment = kTorchrun;
  EXPECT_EQ(launch_of(environment).lacking, "");
  environment.erase("MASTER_PORT");
  EXPECT_EQ(launch_of(environment).lacking, "MASTER_PORT");
  environment["MASTER_PORT"] = "1";
  environment.erase("MASTER_ADDR");
  EXPECT_EQ(launch_of(environment).lacking, "MASTER_ADDR");
}

// Each process would be a job of its own, with its own rows alone.
TEST(LaunchEnvironment, HalfALauncherIsRefusedByTheNameThatIsMissing) {
  const auto refusal = [](const Environment& whole, const std::string& without) {
    Environment environment = whole;
    environment.erase(without);
    return refusal_of_launch(environment);
  };
  for (const char* name : {"RANK", "WORLD_SIZE"}) {
    EXPECT_NE(refusal(kTorchrun, name).find(std::string(name) + " is not set"), std::string::npos) << name;
  }
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}) {
    EXPECT_NE(refusal(kOpenMpi, name).find(std::string(name) + " is not set"), std::string::npos) << name;
  }
  for (const char* name : {"PMI_RANK", "PMI_SIZE"}) {
    EXPECT_NE(refusal(kMpich, name).find(std::string(name) + " is not set"), std::string::npos) << name;
  }
}

TEST(LaunchEnvironment, NumbersThatCannotBeAreRefusedByName) {
  const auto refusal = [](Environment environment, const std::string& name, const std::string& value) {
    environment[name] = value;
    return refusal_of_launch(environment);
  };
  EXPECT_NE(refusal(kTorchrun, "RANK", "8").find("RANK must be less than WORLD_SIZE"), std::string::npos);
  EXPECT_NE(refusal(kTorchrun, "RANK", "one").find("RANK = 'one'"), std::string::npos);
  EXPECT_NE(refusal(kTorchrun, "WORLD_SIZE", "-1").find("WORLD_SIZE = '-1'"), std::string::npos);
  EXPECT_NE(refusal(kTorchrun, "LOCAL_RANK", "4").find("LOCAL_RANK must be less"), std::string::npos);
  EXPECT_NE(refusal(kTorchrun, "LOCAL_WORLD_SIZE", "9").find("more ranks than the job"), std::string::npos);
  EXPECT_NE(refusal(kSlurm, "SLURM_STEP_NODELIST", "gpu[07").find("gpu[07"), std::string::npos);
}

TEST(HostList, ExpandsRangesWithTheirWidth) {
  EXPECT_EQ(expand_host_list("login"), Hosts{"login"});
  EXPECT_EQ(expand_host_list("gpu[01-03,7],login"), (Hosts{"gpu01", "gpu02", "gpu03", "gpu7", "login"}));
  EXPECT_EQ(expand_host_list("r[1-2]n[8-9]-ib"), (Hosts{"r1n8-ib", "r1n9-ib", "r2n8-ib", "r2n9-ib"}));
  EXPECT_EQ(expand_host_list("a[09-10]"), (Hosts{"a09", "a10"}));
}

TEST(HostList, RefusesWhatSlurmDoesNotWrite) {
  for (const char* text : {"", "a,,b", "a[1", "a]1[", "a[[1]]", "a[3-1]", "a[x]", "a[1-]", "a[0-99999999]", "a[]"}) {
    EXPECT_THROW(expand_host_list(text), Error) << text;
  }
}

TEST(HostList, ALongListIsRefusedBeforeItIsMade) {
  EXPECT_THROW(expand_host_list("a[0-65535]b[0-65535]c[0-65535]"), Error);
  EXPECT_EQ(expand_host_list("a[0-65535]").size(), 65536U);
}

TEST(TasksPerNode, ExpandsRepeats) {
  EXPECT_EQ(expand_tasks_per_node("2(x3),1"), (std::vector<int32_t>{2, 2, 2, 1}));
  for (const char* text : {"", "0", "2(x0)", "2(x", "2(x3", "(x3)", "2(x99999)", "2;3"}) {
    EXPECT_THROW(expand_tasks_per_node(text), Error) << text;
  }
}

}  // namespace
}  // namespace tilewire

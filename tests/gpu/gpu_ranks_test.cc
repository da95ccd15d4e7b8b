// GPU ranks as processes of their own on one GPU: sessions, arenas that they map from one another, and calls of the fused
// kernel, as a program of a user makes them. The ranks share the GPU's SMs under a private MPS daemon; where they are of
// several nodes, a wire process joins those. Here is what starts them; rank_scenarios.h has what they do.
//   gpu_ranks_test [--gpus] [PART OF A SCENARIO'S NAME [CALLS OF A MIX]]    --gpus deals the ranks out to all GPUs
//   tilewire run --virtual 2x2 gpu_ranks_test rank "ag_gemm, nodes 2x2, lives"
// Without an MPS daemon only one rank alone can be tested. One whose folder is set in the environment is used as it is,
// and then nobody is killed.
#include <netinet/in.h>
#include <sys/socket.h>

#include <csignal>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>

#include "device/tile/tile_launch.cuh"
#include "device/wire/wire.cuh"
#include "gpu_program.cuh"
#include "mps_daemon.h"
#include "rank_mix.h"
#include "rank_scenarios.h"
#include "rank_tests.h"
#include "spawned_program.h"
#include "wire_process.h"

namespace tilewire {
namespace {

std::string free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("no free port");
  }
  close(fd);
  return std::to_string(ntohs(address.sin_port));
}

std::string text_of(const std::vector<int32_t>& nodes) {
  std::string text;
  for (const int32_t ranks : nodes) text += (text.empty() ? "" : ",") + std::to_string(ranks);
  return text;
}

// A context takes as many channels as it may have connections, of some 128 that an MPS server has for its clients: with
// 32 connections each the fourth client is refused as if memory had run out.
constexpr const char* kConnections = "CUDA_DEVICE_MAX_CONNECTIONS=8";

// Of ranks that are dealt out to this many GPUs, as the library deals them.
std::vector<std::string> variables_of(const Scenario& scenario, int32_t gpus) {
  const int32_t ranks = scenario.ranks(), wire_sms = scenario.has_wire() ? wire_ctas(ranks) : 0;
  const int32_t on_one = (ranks + gpus - 1) / gpus;
  return {"TILEWIRE_DEVICE=cuda", "TILEWIRE_CUDA_DEVICE=" + std::to_string(gpus > 1 ? -1 : 0),
          "TILEWIRE_SMS=" + std::to_string((sm_count() - wire_sms) / on_one / 2 * 2),
          "TILEWIRE_LAYOUT=" + text_of(scenario.nodes), "TILEWIRE_ARENA_INITIAL_BYTES=2MiB",
          // A rank's share of a card of 400 Gbit/s.
          "TILEWIRE_EMULATED_BANDWIDTH_GBPS=" + std::to_string(400 / ranks),
          std::string("TILEWIRE_EMULATED_PERSONALITY=") + scenario.personality, kConnections,
          "TILEWIRE_SECRET=only the ranks of this test", std::string("CUDA_MODULE_LOADING=") + scenario.loading};
}

// That beside this program, where both were brought from elsewhere, else that of the build.
std::string wire_program() {
  const std::filesystem::path beside =
      std::filesystem::read_symlink("/proc/self/exe").replace_filename("tilewire_wire");
  return std::filesystem::exists(beside) ? beside.string() : TILEWIRE_WIRE_PROGRAM;
}

// Another program that holds SMs of the GPU: from its making on until a rank asks for them.
class Crowd {
 public:
  explicit Crowd(std::vector<std::string> variables) : folder_(make_folder("crowd")) {
    variables.push_back(variable());
    program_.emplace(std::vector<std::string>{"/proc/self/exe", "hold"}, variables);
    const std::string held = file() + kHeldEnding;
    for (int i = 0; i < 2000 && !std::filesystem::exists(held); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  ~Crowd() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  std::string variable() const { return std::string(kReleaseFile) + "=" + file(); }
  int end() { return program_->wait(std::chrono::seconds(rank_limit_s())); }

 private:
  std::string file() const { return (folder_ / "release").string(); }

  std::filesystem::path folder_;
  std::optional<SpawnedProgram> program_;
};

void run_scenario(const Scenario& scenario, int32_t gpus, std::vector<std::string> variables) {
  std::printf("%s, %d ranks\n", scenario.name.c_str(), scenario.ranks());
  std::fflush(stdout);
  const auto begin = Clock::now();
  std::vector<std::string> words{"/proc/self/exe", "rank", scenario.name};
  const size_t lives = scenario.body ? 1 : scenario.lives.size();
  for (size_t life = 0; life < lives; ++life) words.push_back(free_port());
  for (const std::string& v : variables_of(scenario, gpus)) variables.push_back(v);
  std::optional<WireProcess> wire;
  if (scenario.has_wire()) {
    wire.emplace(wire_program(), variables);
    variables.push_back(wire->variable());
    variables.push_back(std::string(kWirePid) + "=" + std::to_string(wire->pid()));
  }
  variables.push_back("TILEWIRE_WORLD_SIZE=" + std::to_string(scenario.ranks()));
  std::optional<Crowd> crowd;
  if (scenario.is_crowded) variables.push_back(crowd.emplace(variables).variable());
  std::vector<SpawnedProgram> ranks;
  for (int32_t r = 0; r < scenario.ranks(); ++r) {
    std::vector<std::string> own = variables;
    own.push_back("TILEWIRE_RANK=" + std::to_string(r));
    ranks.emplace_back(words, own);
  }
  for (int32_t r = 0; r < scenario.ranks(); ++r) {
    const bool is_killed = scenario.kills_last_rank && r + 1 == scenario.ranks();
    const int end = ranks[static_cast<size_t>(r)].wait(std::chrono::seconds(rank_limit_s() + 5));
    expect(end == (is_killed ? -SIGKILL : 0),
           scenario.name + ": rank " + std::to_string(r) + " ended with " + std::to_string(end));
  }
  if (crowd) expect(crowd->end() == 0, "who holds SMs gives them back");
  if (wire) {
    const int end = wire->end();
    std::printf("  the wire ended with %d\n", end);
    // What a kill does to the other clients of a daemon may be the wire's end too.
    expect(end == (scenario.kills_wire ? -SIGKILL : 0) || scenario.kills_last_rank, "the wire ends well");
  }
  std::printf("  took %.1f s\n", ms_since(begin) / 1e3);
  std::fflush(stdout);
}

int run_all(const std::string& part, int32_t gpus) {
  const bool has_own_mps = std::getenv("CUDA_MPS_PIPE_DIRECTORY") != nullptr;
  const std::string control = has_own_mps ? "" : find_mps_control();
  std::printf("MPS: %s\n", has_own_mps ? "that of the environment" : control.empty() ? "none" : control.c_str());
  std::unique_ptr<MpsDaemon> daemon;
  int run = 0;
  for (const Scenario& scenario : scenarios()) {
    if (scenario.name.find(part) == std::string::npos) continue;
    if (scenario.kills() && has_own_mps) continue;
    if (scenario.ranks() > 1 && scenario.has_mps && !has_own_mps && control.empty()) continue;
    if (!scenario.has_mps && has_own_mps) continue;
    if (gpus > 1 && (scenario.is_crowded || !scenario.has_mps)) continue;  // about ranks that share a GPU
    if (scenario.kills() || !scenario.has_mps)
      daemon.reset();  // what a kill does to a daemon's other clients stays with this one
    if (!daemon && scenario.has_mps && !control.empty()) daemon = std::make_unique<MpsDaemon>(control);
    ++run;
    run_scenario(scenario, gpus, daemon ? daemon->environment() : std::vector<std::string>());
  }
  if (run == 0) {
    std::printf("no scenario was run\n");
    return kSkipped;
  }
  return verdict_of_claims();
}

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  std::vector<std::string> args(words + 1, words + count);
  return tilewire::run_gpu_program([&] {
    int gpus = 1;
    if (!args.empty() && args[0] == "--gpus") {
      tilewire::check_cuda(cudaGetDeviceCount(&gpus), "counting GPUs");
      args.erase(args.begin());
    }
    if (!args.empty() && args[0] == "hold") return tilewire::hold_sms();
    if (args.size() >= 2 && args[0] == "rank") {
      for (const tilewire::Scenario& scenario : tilewire::scenarios()) {
        if (args[1] == scenario.name) return tilewire::run_rank(scenario, {args.begin() + 2, args.end()});
      }
      return 2;
    }
    if (args.size() >= 2) setenv(tilewire::kMixedCalls, args[1].c_str(), 1);  // ranks get it, too
    return tilewire::run_all(args.empty() ? "" : args[0], gpus);
  });
}

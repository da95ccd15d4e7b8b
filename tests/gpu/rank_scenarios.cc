#include "rank_scenarios.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "rank_mix.h"
#include "rank_tests.h"

namespace tilewire {
namespace {

constexpr int32_t kHeldSms = 8;  // by another program
constexpr uint64_t kHoldLimitNs = 60'000'000'000;
constexpr std::chrono::milliseconds kLook{10};

void expect_refusal(const Options& options, const std::string& part) {
  const auto begin = Clock::now();
  const auto error = error_of([&] { const Joined joined(options); });
  std::printf("  rank %lld after %.1f ms: %s\n", static_cast<long long>(options.rank), ms_since(begin),
              error ? error->what() : "no error");
  expect(error && std::string(error->what()).find(part) != std::string::npos, "the refusal says: " + part);
}

void await_file(const std::string& path) {
  while (!std::filesystem::exists(path)) std::this_thread::sleep_for(kLook);
}

// Has the other program give back what it holds.
void await_free_sms() {
  const std::string file = std::getenv(kReleaseFile);
  std::ofstream(file).put('\n');
  await_file(file + ".done");
}

size_t used_mib_of_gpu() {
  size_t free = 0, all = 0;
  check_cuda(cudaMemGetInfo(&free, &all), "asking for the memory in use");
  return (all - free) >> 20;
}

// What was used behind each life; the first ones may leave what the process needs for good.
void expect_flat(const std::vector<size_t>& used_mib) {
  std::printf("  MiB used behind each life:");
  for (const size_t mib : used_mib) std::printf(" %zu", mib);
  std::printf("\n");
  const auto early = used_mib.begin() + static_cast<std::ptrdiff_t>(used_mib.size() / 3);
  expect(*std::max_element(early, used_mib.end()) <= *early, "lives leave no memory of the GPU in use");
}

// That of this rank: all ranks are on one host.
void choose_gpu(const Options& options) {
  int gpus = 0;
  check_cuda(cudaGetDeviceCount(&gpus), "counting GPUs");
  const int64_t chosen = options.cuda_device >= 0 ? options.cuda_device : options.rank % gpus;
  check_cuda(cudaSetDevice(static_cast<int>(chosen)), "choosing the GPU");
}

// Those of the operation that has most of them, with all that is about sessions rather than an operation.
std::vector<Scenario> scenarios_of_sessions() {
  using Ag = RankTests<AgGemmRankOp>;
  std::vector<Scenario> all{
      {.name = "lives of 2", .lives = {Ag::life, Ag::next_life}},
      {.name = "lives of 2, eager", .lives = {Ag::life}, .loading = "EAGER"},
      {.name = "lives of 4", .lives = {Ag::life, Ag::next_life}, .nodes = {4}},
      {.name = "lives of 1", .lives = {Ag::life}, .nodes = {1}},
      {.name = "many lives of 1",
       .lives = std::vector<std::function<void(Joined&)>>(12, Ag::next_life),
       .nodes = {1},
       .is_flat = true},
      {.name = "mismatch", .lives = {Ag::mismatch, Ag::next_life}, .nodes = {3}},
      {.name = "refused", .lives = {Ag::refused, Ag::next_life}, .nodes = {3}},
      {.name = "absent", .lives = {Ag::next_life, Ag::absent}, .nodes = {3}, .last_deadline_s = 0.05},
      {.name = "nodes 2x2, lives", .lives = {Ag::life, Ag::next_life}, .nodes = {2, 2}},
      {.name = "nodes 2x2, srd", .lives = {Ag::life}, .nodes = {2, 2}, .personality = "srd"},
      {.name = "nodes 3+1, lives", .lives = {Ag::life, Ag::next_life}, .nodes = {3, 1}},
      {.name = "nodes 1+2, lives", .lives = {Ag::life, Ag::next_life}, .nodes = {1, 2}},
      {.name = "nodes 2x2, mismatch", .lives = {Ag::mismatch, Ag::next_life}, .nodes = {2, 2}},
      {.name = "nodes 2x2, orders", .lives = {Ag::orders, Ag::next_life}, .nodes = {2, 2}},
      {.name = "nodes 2x2, refused", .lives = {Ag::refused, Ag::next_life}, .nodes = {2, 2}},
      {.name = "nodes 1+2, absent", .lives = {Ag::next_life, Ag::absent}, .nodes = {1, 2}, .last_deadline_s = 0.05},
      {.name = "nodes 2x2, crowded",
       .lives = {Ag::next_life, Ag::next_life},
       .nodes = {2, 2},
       .refusal = "came: rank 0",
       .is_crowded = true},
      {.name = "without MPS", .lives = {Ag::next_life}, .refusal = "without MPS", .has_mps = false},
      {.name = "killed", .lives = {Ag::killed}, .nodes = {3}, .kills_last_rank = true},
      {.name = "nodes 1+2, killed", .lives = {Ag::killed}, .nodes = {1, 2}, .kills_last_rank = true},
      {.name = "nodes 1+2, wire killed", .lives = {Ag::wire_killed}, .nodes = {1, 2}, .kills_wire = true}};
  for (Scenario& scenario : all) scenario.name = "ag_gemm, " + scenario.name;
  return all;
}

// What is about an operation alone.
template <class Op>
void add_scenarios(const std::string& op, std::vector<Scenario>& all) {
  using Tests = RankTests<Op>;
  const std::vector<Scenario> own{
      {.name = "lives of 1", .lives = {Tests::life}, .nodes = {1}},
      {.name = "lives of 4", .lives = {Tests::life, Tests::next_life}, .nodes = {4}},
      {.name = "nodes 2x2, lives", .lives = {Tests::life, Tests::next_life}, .nodes = {2, 2}},
      {.name = "nodes 2x2, srd", .lives = {Tests::life}, .nodes = {2, 2}, .personality = "srd"},
      {.name = "nodes 3+1, lives", .lives = {Tests::life}, .nodes = {3, 1}},
      {.name = "nodes 2x2, mismatch", .lives = {Tests::mismatch, Tests::next_life}, .nodes = {2, 2}},
      {.name = "refused", .lives = {Tests::refused, Tests::next_life}, .nodes = {3}},
      {.name = "nodes 1+2, absent",
       .lives = {Tests::next_life, Tests::absent},
       .nodes = {1, 2},
       .last_deadline_s = 0.05},
      {.name = "nodes 1+2, killed", .lives = {Tests::killed}, .nodes = {1, 2}, .kills_last_rank = true}};
  for (Scenario scenario : own) {
    scenario.name = op + ", " + scenario.name;
    all.push_back(std::move(scenario));
  }
}

}  // namespace

unsigned rank_limit_s() { return 80 + static_cast<unsigned>(mixed_calls() / 25); }

std::vector<Scenario> scenarios() {
  std::vector<Scenario> all = scenarios_of_sessions();
  add_scenarios<GemmRsRankOp>("gemm_rs", all);
  add_scenarios<GemmArRankOp>("gemm_ar", all);
  add_scenarios<AttentionRankOp>("attention", all);
  all.push_back({.name = "attention, nodes 2x2, packed", .lives = {test_packed_calls}, .nodes = {2, 2}});
  add_scenarios<MoeDispatchRankOp>("moe_dispatch", all);
  all.push_back({.name = "moe_dispatch, nodes 2x2, remarks", .lives = {test_dispatch_remarks}, .nodes = {2, 2}});
  for (const char* network : {"rc", "srd"}) {
    const std::string name = std::string("link, nodes 1+1, ") + network;
    all.push_back({.name = name, .nodes = {1, 1}, .body = test_links, .personality = network});
    all.push_back({.name = name + ", torn", .nodes = {1, 1}, .body = test_torn_links, .personality = network});
  }
  all.push_back({.name = "link, nodes 1+1+1", .nodes = {1, 1, 1}, .body = test_links});
  all.push_back({.name = "link, nodes 1+1, lost", .nodes = {1, 1}, .body = test_lost_links});
  all.push_back({.name = "all ops, 4", .lives = {mix_calls}, .nodes = {4}});
  all.push_back({.name = "all ops, nodes 2x2", .lives = {mix_calls}, .nodes = {2, 2}});
  return all;
}

// By a roll-call to which one CTA does not come until the file is there.
int hold_sms() {
  alarm(rank_limit_s());
  check_cuda(cudaSetDevice(0), "choosing the GPU");
  DeviceBuffer<RollCallPage> page(1);
  page.fill_bytes(0);
  check_cuda(cudaDeviceSynchronize(), "preparing the page");
  std::thread holder([&page] {
    check_cuda(cudaSetDevice(0), "choosing the GPU");
    hold_roll_call({.page = page.data(), .ctas = kHeldSms, .expected = kHeldSms + 1, .timeout_ns = kHoldLimitNs});
  });
  while (page.to_host()[0].present < kHeldSms) std::this_thread::sleep_for(kLook);
  const std::string file = std::getenv(kReleaseFile);
  std::ofstream(file + kHeldEnding).put('\n');
  await_file(file);
  const uint64_t all = kHeldSms + 1;
  check_cuda(cudaMemcpy(&page.data()->present, &all, sizeof(all), cudaMemcpyHostToDevice), "ending the roll-call");
  holder.join();
  std::ofstream(file + ".done").put('\n');
  return 0;
}

int run_rank(const Scenario& scenario, const std::vector<std::string>& ports) {
  alarm(rank_limit_s());
  choose_gpu(Options::from_environment());
  const auto options_of = [&](size_t life) {
    Options options = Options::from_environment();
    if (!ports.empty()) options.rendezvous = "127.0.0.1:" + ports.at(life);
    options.deadline_s = life + 1 >= scenario.lives.size() ? scenario.last_deadline_s : 20;
    return options;
  };
  if (scenario.body) scenario.body(options_of(0));
  std::vector<size_t> used_mib;
  for (size_t life = 0; life < scenario.lives.size(); ++life) {
    const Options options = options_of(life);
    if (scenario.refusal != nullptr && life == 0) {
      expect_refusal(options, scenario.refusal);
      if (scenario.is_crowded) await_free_sms();
      continue;
    }
    {
      Joined joined(options);
      scenario.lives[life](joined);
    }
    if (scenario.is_flat) used_mib.push_back(used_mib_of_gpu());  // not where a kill has taken the context
    std::fflush(stdout);
  }
  if (scenario.is_flat) expect_flat(used_mib);
  return verdict_of_claims();
}

}  // namespace tilewire

// What gpu_ranks_test has its ranks go through, and the program of a rank.
#pragma once

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

namespace tilewire {

struct Options;
class Joined;  // rank_program.h

unsigned rank_limit_s();  // of a rank's whole life, in which it may have many calls to make

struct Scenario {
  std::string name;                                   // its operation first
  std::vector<std::function<void(Joined&)>> lives{};  // a communicator each, one after the other
  std::vector<int32_t> nodes = {2};                   // ranks of each
  std::function<void(const Options&)> body{};         // in place of lives
  double last_deadline_s = 20;                        // of the last life
  bool kills_last_rank = false;
  bool kills_wire = false;
  const char* refusal = nullptr;  // of the first life's creation
  bool is_crowded = false;        // another program holds SMs during the first life
  bool has_mps = true;
  bool is_flat = false;  // lives leave no memory behind
  const char* personality = "rc";
  const char* loading = "LAZY";

  int32_t ranks() const { return std::accumulate(nodes.begin(), nodes.end(), 0); }
  bool has_wire() const { return nodes.size() > 1; }
  bool kills() const { return kills_last_rank || kills_wire; }
};

std::vector<Scenario> scenarios();

// One rank of it, to its end; the exit status. `ports`: of this host, one a life, where the ranks meet; empty: the
// launcher says where.
int run_rank(const Scenario& scenario, const std::vector<std::string>& ports);

// Another program on the GPU, which holds SMs until there is a file of the name that this variable has. When it holds them
// it makes one with this ending.
constexpr const char *kReleaseFile = "TEST_RELEASE_FILE", *kHeldEnding = ".held";
int hold_sms();

}  // namespace tilewire

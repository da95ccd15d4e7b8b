#include "schedule/simulator/random_run.h"

#include <vector>

#include "schedule/simulator/world.h"

namespace tilewire {
namespace {

// splitmix64; Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  uint64_t roll() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // 0 .. n - 1
  size_t below(size_t n) { return static_cast<size_t>((static_cast<unsigned __int128>(roll()) * n) >> 64); }
  bool one_in(uint32_t n) { return n > 0 && below(n) == 0; }

 private:
  uint64_t state_;
};

class RandomWalk {
 public:
  RandomWalk(const SimProgram& program, const SimOptions& options, uint64_t seed)
      : world_(program, options), dice_(seed) {
    world_.report().seed = seed;
    for (uint32_t& odds : odds_) odds = kOdds[dice_.below(std::size(kOdds))];
    lazy_rank_ = static_cast<int32_t>(dice_.below(static_cast<size_t>(program.ranks()) * 2));  // often none
    takes_newest_ = dice_.one_in(2);
    return_odds_ = static_cast<uint32_t>(8u << dice_.below(8));
  }

  SimReport run() {
    while (!world_.has_failed()) {
      SimEvent event;
      if (!pick(event)) break;
      world_.fire(event);
    }
    if (!world_.has_failed()) world_.judge_end();
    return std::move(world_.report());
  }

 private:
  static constexpr uint32_t kOdds[] = {0, 0, 2, 4, 16, 64};

  static SimEvent take(std::vector<SimEvent>& from, size_t at) {
    const SimEvent event = from[at];
    from[at] = from.back();
    from.pop_back();
    return event;
  }

  bool pick(SimEvent& event) {
    std::vector<SimEvent>& now = world_.possible();
    if (!late_.empty() && dice_.one_in(return_odds_)) {
      event = take(late_, late_place());
      return true;
    }
    while (!now.empty()) {
      event = take(now, dice_.below(now.size()));
      const bool is_lazy = world_.rank_of(event) == lazy_rank_;
      if (!dice_.one_in(is_lazy ? 2 : odds_[static_cast<size_t>(event.step)])) return true;
      late_.push_back(event);
    }
    if (late_.empty()) return false;
    event = take(late_, late_place());
    return true;
  }

  // Newest first starves the oldest for as long as anything else can happen.
  size_t late_place() { return takes_newest_ ? late_.size() - 1 : dice_.below(late_.size()); }

  World world_;
  Dice dice_;
  std::vector<SimEvent> late_;     // put off until nothing else is possible, or by chance
  uint32_t odds_[kSimSteps] = {};  // of being put off, one in so many, by kind of step; 0 = never
  int32_t lazy_rank_ = -1;
  bool takes_newest_ = false;
  uint32_t return_odds_ = 64;
};

}  // namespace

SimReport run_random(const SimProgram& program, const SimOptions& options, uint64_t seed) {
  return RandomWalk(program, options, seed).run();
}

SimReport run_random_seeds(const SimProgram& program, SimOptions options, uint64_t first, int32_t count) {
  SimReport sum;
  sum.seed = first;
  for (int32_t i = 0; i < count; ++i) {
    const uint64_t seed = first + static_cast<uint64_t>(i);
    options.network = seed % 2 == 0 ? SimNetwork::ordered : SimNetwork::counted;
    options.distance = static_cast<SimDistance>(seed % 3);
    options.nics = 1 + static_cast<int32_t>(seed / 2 % 2);
    SimReport one = run_random(program, options, seed);
    if (!one.ok()) return one;
    sum.pieces_of_work += one.pieces_of_work;
    sum.events += one.events;
    sum.messages += one.messages;
  }
  return sum;
}

}  // namespace tilewire

#include "schedule/simulator/exhaustive_run.h"

#include <memory>
#include <unordered_set>
#include <vector>

#include "schedule/simulator/world.h"

namespace tilewire {
namespace {

struct Node {
  explicit Node(const World& w) : world(w) {}
  World world;
  size_t next_choice = 0;
};

class Search {
 public:
  Search(const SimProgram& program, const SimOptions& options, int64_t max_states)
      : program_(program), options_(options), max_states_(max_states) {}

  SimReport run() {
    path_.push_back(std::make_unique<Node>(World(program_, options_)));
    settle(path_.back()->world);
    while (!path_.empty() && !is_over(path_.back()->world)) {
      Node& top = *path_.back();
      if (top.next_choice == top.world.possible().size()) {
        spare_.push_back(std::move(path_.back()));
        path_.pop_back();
        continue;
      }
      descend(top);
    }
    SimReport report = path_.empty() ? SimReport{} : std::move(path_.back()->world.report());
    report.pieces_of_work = pieces_of_work_;
    report.events = events_;
    report.states = static_cast<int64_t>(seen_.size());
    report.is_complete = static_cast<int64_t>(seen_.size()) < max_states_;
    return report;
  }

 private:
  bool is_over(const World& world) const {
    return static_cast<int64_t>(seen_.size()) >= max_states_ || !world.report().ok();
  }

  bool is_taken_at_once(const World& world, const SimEvent& event) const {
    switch (event.step) {
      case SimStep::start_call:
      case SimStep::acquire:
      case SimStep::publish:
      case SimStep::arrive:
      case SimStep::relay:
      case SimStep::publish_sent: return true;
      case SimStep::post: return options_.network == SimNetwork::counted || program_.rings == 1;
      case SimStep::work: return !touches_memory(world, event.index);
      case SimStep::land: return message(world, event).has_data_landed;     // only its flag is left
      case SimStep::complete: return message(world, event).pieces.empty();  // no source that could be overwritten
    }
    return false;
  }

  static const SimMessage& message(const World& world, const SimEvent& event) {
    return world.messages()[static_cast<size_t>(event.index)];
  }

  bool touches_memory(const World& world, int32_t agent) const {
    world.describe_work(agent, touch_);
    return !touch_.accesses().empty();
  }

  // Takes all steps whose place does not matter.
  void settle(World& world) {
    std::vector<SimEvent>& possible = world.possible();
    for (size_t i = 0; i < possible.size() && world.report().ok();) {
      if (!is_taken_at_once(world, possible[i])) {
        ++i;
        continue;
      }
      const SimEvent event = possible[i];
      possible[i] = possible.back();
      possible.pop_back();
      world.fire(event);
      i = 0;
    }
    if (world.possible().empty() && world.report().ok()) world.judge_end();
  }

  void descend(Node& top) {
    const size_t choice = top.next_choice++;
    std::unique_ptr<Node> next;
    if (spare_.empty()) {
      next = std::make_unique<Node>(top.world);
    } else {
      next = std::move(spare_.back());
      spare_.pop_back();
      next->world = top.world;  // keeps the memory it has
    }
    next->next_choice = 0;
    std::vector<SimEvent>& possible = next->world.possible();
    const SimEvent event = possible[choice];
    possible[choice] = possible.back();
    possible.pop_back();
    const int64_t events = next->world.report().events, work = next->world.report().pieces_of_work;
    next->world.fire(event);
    settle(next->world);
    events_ += next->world.report().events - events;
    pieces_of_work_ += next->world.report().pieces_of_work - work;
    if (!next->world.report().ok() || seen_.insert(next->world.hash()).second) {
      path_.push_back(std::move(next));
    } else {
      spare_.push_back(std::move(next));
    }
  }

  const SimProgram& program_;
  const SimOptions& options_;
  int64_t max_states_;
  int64_t events_ = 0;
  int64_t pieces_of_work_ = 0;
  std::vector<std::unique_ptr<Node>> path_;
  std::vector<std::unique_ptr<Node>> spare_;
  std::unordered_set<uint64_t> seen_;
  mutable Touch touch_;
};

}  // namespace

SimReport run_exhaustive(const SimProgram& program, const SimOptions& options, int64_t max_states) {
  return Search(program, options, max_states).run();
}

}  // namespace tilewire

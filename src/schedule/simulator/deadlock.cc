#include "schedule/simulator/deadlock.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "schedule/simulator/world.h"
#include "schedule/word_text.h"

namespace tilewire {
namespace {

// Which piece of work of which agent publishes a word.
struct Source {
  int32_t agent = -1;  // state index, valid where the call runs at its rank
  int32_t rank = 0;
  int32_t piece = 0;
  const Agent* what = nullptr;
};

std::string agent_text(const Agent& a, int32_t rank) {
  return fmt::format("rank {} {}[{}]", rank, a.place.role, a.place.worker);
}

// By the names of the op whose call the rank is in.
std::string place_text(const World& w, int64_t at) {
  const int64_t stride = w.word_at(1, 0), index = at % stride;
  const uint32_t word = index == stride - 1 ? FlagLayout::sent() : static_cast<uint32_t>(index);
  const int32_t call = std::max(0, w.ranks()[static_cast<size_t>(at / stride)].call);
  const char* const* names = w.program().calls[static_cast<size_t>(call)].family_names();
  return fmt::format("{} at rank {}", word_text(w.program().arena.flags, word, names), at / stride);
}

class Explainer {
 public:
  explicit Explainer(World& world) : w_(world) {}

  void run() {
    int32_t agent = first_blocked();
    if (agent < 0) {
      w_.add_violation(ViolationKind::not_at_rest, 0, -1, "nothing is possible, yet no role waits");
      return;
    }
    while (agent >= 0) {
      const auto seen = std::find(way_.begin(), way_.end(), agent);
      if (seen != way_.end()) return report_cycle(seen);
      way_.push_back(agent);
      agent = follow(agent);
    }
  }

 private:
  const AgentState& state(int32_t agent) const { return w_.agents()[static_cast<size_t>(agent)]; }
  int32_t call_of(int32_t rank) const { return w_.ranks()[static_cast<size_t>(rank)].call; }

  bool is_blocked(int32_t agent) const { return !state(agent).is_finished && state(agent).waits_for >= 0; }
  int32_t first_blocked() const {
    for (size_t a = 0; a < w_.agents().size(); ++a) {
      if (is_blocked(static_cast<int32_t>(a))) return static_cast<int32_t>(a);
    }
    return -1;
  }
  int32_t blocked_of_rank(int32_t rank) const {
    for (size_t a = 0; a < w_.agents().size(); ++a) {
      if (w_.agents()[a].rank == rank && is_blocked(static_cast<int32_t>(a))) return static_cast<int32_t>(a);
    }
    return -1;
  }

  std::string wait_text(int32_t agent) const {
    const AgentState& s = state(agent);
    return fmt::format("{}, piece of work {}, waits for {} to reach {} (it is {})", agent_text(*s.agent, s.rank),
                       s.acquired, place_text(w_, s.waits_for), needed(agent), w_.word_value(s.waits_for));
  }
  Epoch needed(int32_t agent) const {
    return w_.program().epoch(call_of(state(agent).rank)) - static_cast<Epoch>(w_.current_need(agent).lag);
  }

  void report_cycle(std::vector<int32_t>::iterator begin) {
    std::string text = fmt::format("{} roles wait for each other", way_.end() - begin);
    for (auto a = begin; a != way_.end(); ++a) text += "\n    " + wait_text(*a);
    w_.add_violation(ViolationKind::cycle, state(*begin).rank, *begin, text, state(*begin).waits_for);
  }

  void report(ViolationKind kind, int32_t agent, const std::string& why) {
    w_.add_violation(kind, state(agent).rank, agent, wait_text(agent) + "; " + why, state(agent).waits_for);
  }

  // The blocked agent that `agent` waits for, or -1 when the standstill is explained.
  int32_t follow(int32_t agent) {
    const Need need = w_.current_need(agent);
    const auto call = static_cast<int32_t>(needed(agent) - w_.program().first_epoch);
    Source from;
    if (need.word == FlagLayout::sent()) {
      const int32_t ring = open_ring(state(agent).rank, call);
      if (ring < 0) {
        report(ViolationKind::not_at_rest, agent, "all rings have ended that call, yet sent does not come");
        return -1;
      }
      if (!find_call_end(state(agent).rank, ring, call, from) || is_published(from, call)) {
        report(ViolationKind::missing_call_end, agent, fmt::format("ring {} never gets call_end of that call", ring));
        return -1;
      }
    } else if (!find_publisher(state(agent).waits_for, call, from)) {
      report(ViolationKind::wait_without_signal, agent, "nobody publishes it");
      return -1;
    }
    if (is_published(from, call)) {
      report(
          ViolationKind::wait_without_signal, agent,
          fmt::format("the signal of {}, piece of work {}, was lost", agent_text(*from.what, from.rank), from.piece));
      return -1;
    }
    if (call_of(from.rank) == call && state(from.agent).agent == from.what && from.piece < state(from.agent).worked) {
      report(ViolationKind::held_back, from.agent,
             fmt::format("it holds back the signal of its piece of work {} that {} waits for", from.piece,
                         agent_text(*state(agent).agent, state(agent).rank)));
      return -1;
    }
    const bool is_here = call_of(from.rank) == call && state(from.agent).agent == from.what && is_blocked(from.agent);
    return is_here ? from.agent : blocked_of_rank(from.rank);
  }

  bool is_published(const Source& from, int32_t call) const {
    if (call_of(from.rank) > call) return true;
    if (call_of(from.rank) < call) return false;
    const AgentState& s = state(from.agent);
    return s.agent == from.what && from.piece < s.published;
  }

  int32_t open_ring(int32_t rank, int32_t call) const {
    for (int32_t i = 0; i < w_.program().rings; ++i) {
      if (w_.ring(rank, i).call <= call) return i;
    }
    return -1;
  }

  // Walks the agents of `rank` in `call` from the start until `is_it` says yes to a piece of work.
  template <class F>
  bool search(int32_t rank, int32_t call, F is_it, Source& found) const {
    int32_t index = 0;
    while (w_.agents()[static_cast<size_t>(index)].rank != rank) ++index;
    for (const Agent& a : w_.program().calls[static_cast<size_t>(call)].agents(Rank{rank})) {
      const std::byte* model = w_.program().calls[static_cast<size_t>(call)].model(a);
      std::vector<std::max_align_t> cursor(static_cast<size_t>(a.table->cursor_bytes) / sizeof(std::max_align_t) + 1);
      auto* bytes = reinterpret_cast<std::byte*>(cursor.data());
      a.table->start(model, bytes);
      for (int32_t piece = 0; a.table->next(bytes); ++piece) {
        if (!is_it(a, model, bytes)) continue;
        found = {index, rank, piece, &a};
        return true;
      }
      ++index;
    }
    return false;
  }

  bool find_call_end(int32_t rank, int32_t ring, int32_t call, Source& found) const {
    if (call < 0) return false;
    return search(
        rank, call,
        [&](const Agent& a, const std::byte* model, const std::byte* cursor) {
          const Command* c = a.table->command == nullptr ? nullptr : a.table->command(model, cursor);
          return c != nullptr && c->kind == CommandKind::call_end && a.place.ring == ring;
        },
        found);
  }

  bool find_publisher(int64_t word, int32_t call, Source& found) const {
    if (call < 0) return false;
    const auto publishes = [&](const Agent& a, const std::byte* model, const std::byte* cursor) {
      const Command* c = a.table->command == nullptr ? nullptr : a.table->command(model, cursor);
      if (c != nullptr) return c->kind != CommandKind::call_end && w_.word_at(c->peer.value, c->word) == word;
      const int32_t count = a.table->counts(cursor).publishes;
      for (int32_t i = 0; i < count; ++i) {
        const Publish p = a.table->publish(cursor, i);
        if (w_.word_at(p.to.value, p.word) == word) return true;
      }
      return false;
    };
    for (int32_t r = 0; r < w_.program().ranks(); ++r) {
      if (search(r, call, publishes, found)) return true;
    }
    return false;
  }

  World& w_;
  std::vector<int32_t> way_;
};

}  // namespace

void explain_standstill(World& world) { Explainer(world).run(); }

}  // namespace tilewire

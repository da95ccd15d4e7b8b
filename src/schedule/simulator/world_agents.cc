// How agents step: three cursors that wait, work and publish.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "schedule/simulator/world.h"

namespace tilewire {
namespace {

Cursors distances(const AgentPlace& place, SimDistance distance) {
  constexpr int32_t kFar = std::numeric_limits<int32_t>::max() / 2;
  if (!place.has_cursors) return {};
  Cursors c = place.cursors;
  if (distance == SimDistance::one) c = {1, 1};
  if (distance == SimDistance::maximum) c = {kFar, kFar};
  if (place.reads_own_writes) c.load_ahead = 0;
  c.load_ahead = std::min(c.load_ahead, place.most_load_ahead);
  return c;
}

}  // namespace

size_t World::wait_cursor_at(const AgentState& s) const {
  return static_cast<size_t>(cursor_base_[static_cast<size_t>(s.rank)] + s.agent->cursor_offset);
}
size_t World::work_cursor_at(const AgentState& s) const {
  return wait_cursor_at(s) + static_cast<size_t>(s.load_ahead > 0 ? s.agent->table->cursor_bytes : 0);
}
size_t World::publish_cursor_at(const AgentState& s) const {
  return work_cursor_at(s) + static_cast<size_t>(s.publish_behind > 0 ? s.agent->table->cursor_bytes : 0);
}

void World::start_call(int32_t rank) {
  RankState& r = ranks_[static_cast<size_t>(rank)];
  ++r.call;
  const SimCall& call = program_->calls[static_cast<size_t>(r.call)];
  for (int32_t p = 0; p < topology_.ranks; ++p) {
    const bool is_member = p != rank && topology_.ends_together(Rank{rank}, Rank{p});
    if (is_member && ranks_[static_cast<size_t>(p)].calls_finished < r.call - 1) {
      add_violation(ViolationKind::two_ahead, rank, -1,
                    fmt::format("begins call {} while rank {} of its done set has not ended call {}",
                                program_->epoch(r.call), p, program_->epoch(r.call - 2)));
    }
  }
  for (const UserInput& input : call.user_inputs()) {
    if (input.range.rank.value != rank) continue;
    apply_access(-1, {Access::Kind::write, {}, input.range, input.content});
  }
  tiles_[static_cast<size_t>(rank)].assign(static_cast<size_t>((call.tiles(Rank{rank}) + 63) / 64), 0);
  r.stage = -1;
  r.next_agent = 0;
  r.stage_left = 0;
  r.unfinished = static_cast<int32_t>(call.agents(Rank{rank}).size());
  if (r.unfinished == 0) return finish_call(rank);
  begin_stage(rank);
}

void World::begin_stage(int32_t rank) {
  RankState& r = ranks_[static_cast<size_t>(rank)];
  const std::vector<Agent>& mine = program_->calls[static_cast<size_t>(r.call)].agents(Rank{rank});
  const int32_t first = r.next_agent;
  r.stage = mine[static_cast<size_t>(first)].place.stage;
  while (r.next_agent < static_cast<int32_t>(mine.size()) &&
         mine[static_cast<size_t>(r.next_agent)].place.stage == r.stage) {
    ++r.next_agent;
  }
  const int32_t last = r.next_agent, base = agent_base_[static_cast<size_t>(rank)];
  r.stage_left = last - first;
  for (int32_t a = first; a < last; ++a) begin_agent(base + a, mine[static_cast<size_t>(a)]);
  // The last one to finish may end the call, so nothing of it is looked at behind this loop.
  for (int32_t a = first; a < last; ++a) refresh(base + a);
}

void World::begin_agent(int32_t agent, const Agent& what) {
  AgentState& s = agents_[static_cast<size_t>(agent)];
  const int32_t rank = s.rank;
  s = AgentState{};
  s.rank = rank;
  s.agent = &what;
  s.is_finished = false;
  s.model = program_->calls[static_cast<size_t>(ranks_[static_cast<size_t>(rank)].call)].model(what);
  const Cursors cursors = distances(what.place, options_->distance);
  s.load_ahead = cursors.load_ahead;
  s.publish_behind = cursors.publish_behind;
  what.table->start(s.model, wait_cursor(s));
  if (s.load_ahead > 0) what.table->start(s.model, work_cursor(s));
  if (s.publish_behind > 0) what.table->start(s.model, publish_cursor(s));
}

// Moves the wait cursor on where the distance to the work cursor allows it.
void World::load(int32_t agent) {
  AgentState& s = agents_[static_cast<size_t>(agent)];
  if (s.is_at_end || s.loaded > s.acquired || s.acquired - s.worked > s.load_ahead) return;
  const bool is_shared = s.load_ahead == 0 && s.publish_behind == 0;
  if (is_shared && s.published < s.worked) return;
  if (!s.agent->table->next(wait_cursor(s))) {
    s.is_at_end = true;
    return;
  }
  ++s.loaded;
  s.need = 0;
  s.needs = s.agent->table->counts(wait_cursor(s)).needs;
}

// Sees words as far as they are there; where one is not, the agent is put on its list.
bool World::has_needs(int32_t agent) {
  AgentState& s = agents_[static_cast<size_t>(agent)];
  const int32_t call = ranks_[static_cast<size_t>(s.rank)].call;
  for (; s.need < s.needs; ++s.need) {
    const Need n = s.agent->table->need(wait_cursor(s), s.need);
    const int64_t at = word_at(s.rank, n.word);
    if (!options_->faults.empty() && planted(SimFault::drop_need, agent, s.acquired, n.word) != nullptr) continue;
    WordState& w = words_.at(at);
    if (w.reached < call + 1 - n.lag) {
      s.waits_for = at;
      s.next_waiter = w.first_waiter;
      w.first_waiter = agent + 1;
      return false;
    }
    w.acquired = std::max(w.acquired, static_cast<uint16_t>(call + 1 - n.lag));
  }
  return true;
}

void World::refresh(int32_t agent) {
  AgentState& s = agents_[static_cast<size_t>(agent)];
  if (s.is_finished) return;
  load(agent);
  if (s.loaded > s.acquired && !s.is_listed[kAcquire] && s.waits_for < 0 && has_needs(agent)) {
    s.is_listed[kAcquire] = true;
    list(SimStep::acquire, agent);
  }
  list_work(agent);
  list_publish(agent);
  if (s.is_at_end && s.published == s.loaded) finish_agent(agent);
}

void World::list_work(int32_t agent) {
  AgentState& s = agents_[static_cast<size_t>(agent)];
  if (s.is_listed[kWork] || s.worked >= s.acquired || s.worked - s.published > s.publish_behind) return;
  const bool needs_more = options_->has_strict_load_ahead && !s.is_at_end && s.acquired - s.worked <= s.load_ahead;
  if (needs_more) return;
  if (s.load_ahead > 0) s.agent->table->next(work_cursor(s));
  s.is_listed[kWork] = true;
  list(SimStep::work, agent);
}

void World::list_publish(int32_t agent) {
  AgentState& s = agents_[static_cast<size_t>(agent)];
  if (s.is_listed[kPublish] || s.published >= s.worked) return;
  const bool is_over = s.is_at_end && s.worked == s.loaded;
  if (!options_->flushes_before_wait && !is_over && s.worked - s.published <= s.publish_behind) return;
  if (s.publish_behind > 0) s.agent->table->next(publish_cursor(s));
  s.is_listed[kPublish] = true;
  list(SimStep::publish, agent);
}

void World::acquire(int32_t agent) {
  AgentState& s = agents_[static_cast<size_t>(agent)];
  s.is_listed[kAcquire] = false;
  if (options_->checks_memory && s.agent->table->touch != nullptr) {
    touch_.clear();
    s.agent->table->touch(s.model, wait_cursor(s), touch_);
    for (const Access& a : touch_.accesses()) {
      if (a.kind != Access::Kind::write) check_read(agent, a.from, a.content);
    }
  }
  if (!options_->faults.empty() && planted(SimFault::early_signal, agent, s.acquired, -1) != nullptr) {
    publish_at(agent, wait_cursor(s), s.acquired);
  }
  ++s.acquired;
  refresh(agent);
}

void World::work(int32_t agent) {
  AgentState& s = agents_[static_cast<size_t>(agent)];
  s.is_listed[kWork] = false;
  if (options_->checks_memory && s.agent->table->touch != nullptr) {
    touch_.clear();
    s.agent->table->touch(s.model, work_cursor(s), touch_);
    for (const Access& a : touch_.accesses()) apply_access(agent, a);
    if (touch_.tile() >= 0) make_tile(agent, touch_.tile());
  }
  ++report_.pieces_of_work;
  ++s.worked;
  refresh(agent);
}

void World::publish(int32_t agent) {
  AgentState& s = agents_[static_cast<size_t>(agent)];
  s.is_listed[kPublish] = false;
  const bool is_early = !options_->faults.empty() && planted(SimFault::early_signal, agent, s.published, -1) != nullptr;
  if (!is_early) publish_at(agent, publish_cursor(s), s.published);
  ++s.published;
  refresh(agent);
}

void World::publish_at(int32_t agent, const std::byte* cursor, int32_t piece) {
  const AgentState& s = agents_[static_cast<size_t>(agent)];
  const bool has_faults = !options_->faults.empty();
  const Command* command = s.agent->table->command == nullptr ? nullptr : s.agent->table->command(s.model, cursor);
  if (command != nullptr) {
    if (has_faults && planted(SimFault::drop_signal, agent, piece, command->word) != nullptr) return;
    return give_command(agent, *command);
  }
  const int32_t publishes = s.agent->table->counts(cursor).publishes;
  for (int32_t i = 0; i < publishes; ++i) {
    const Publish target = s.agent->table->publish(cursor, i);
    if (has_faults && planted(SimFault::drop_signal, agent, piece, target.word) != nullptr) continue;
    store_word(agent, target);
  }
}

void World::finish_agent(int32_t agent) {
  AgentState& s = agents_[static_cast<size_t>(agent)];
  s.is_finished = true;
  RankState& r = ranks_[static_cast<size_t>(s.rank)];
  --r.unfinished;
  if (--r.stage_left > 0) return;
  if (r.unfinished > 0) {
    begin_stage(s.rank);
  } else {
    finish_call(s.rank);
  }
}

void World::finish_call(int32_t rank) {
  RankState& r = ranks_[static_cast<size_t>(rank)];
  check_tiles(rank);
  check_done_set(rank);
  ++r.calls_finished;
  if (r.calls_finished == static_cast<int32_t>(program_->calls.size())) {
    ++ranks_finished_;
  } else {
    list(SimStep::start_call, rank);
  }
}

void World::wake(int64_t word) {
  int32_t waiter = std::exchange(words_.at(word).first_waiter, 0);
  while (waiter > 0) {
    const int32_t agent = waiter - 1;
    AgentState& s = agents_[static_cast<size_t>(agent)];
    waiter = s.next_waiter;
    s.waits_for = -1;
    s.next_waiter = 0;
    refresh(agent);
  }
}

void World::describe_work(int32_t agent, Touch& touch) const {
  const AgentState& s = agents_[static_cast<size_t>(agent)];
  touch.clear();
  if (s.agent->table->touch == nullptr) return;
  s.agent->table->touch(s.model, cursors_.data() + work_cursor_at(s), touch);
}

bool World::gives_command(int32_t agent) const {
  const AgentState& s = agents_[static_cast<size_t>(agent)];
  if (s.agent->table->command == nullptr) return false;
  return s.agent->table->command(s.model, cursors_.data() + work_cursor_at(s)) != nullptr;
}

Need World::current_need(int32_t agent) const {
  const AgentState& s = agents_[static_cast<size_t>(agent)];
  return s.agent->table->need(cursors_.data() + wait_cursor_at(s), s.need);
}

}  // namespace tilewire

// Words, and what done(e) claims.
#include <fmt/format.h>

#include <algorithm>

#include "schedule/simulator/world.h"

namespace tilewire {

// A signal is given for `word` in `call`. False when that breaks a rule.
bool World::note_signal(int64_t word, int32_t call, int32_t agent, int32_t rank) {
  WordState& w = words_.at(word);
  const int64_t index = word % words_a_rank_, to = word / words_a_rank_;
  if (w.posted == call + 1) {
    add_violation(ViolationKind::signal_twice, rank, agent,
                  fmt::format("word {} of rank {} is published twice", index, to), word);
    return false;
  }
  if (w.posted != w.acquired) {
    add_violation(ViolationKind::signal_without_wait, static_cast<int32_t>(to), -1,
                  fmt::format("nobody waited for word {} in call {}", index, program_->epoch(w.posted - 1)), word);
  }
  w.posted = static_cast<uint16_t>(call + 1);
  if (program_->arena.flags.is_done(static_cast<uint32_t>(index))) check_done(agent);
  return true;
}

void World::store_word(int32_t agent, Publish target) {
  const int32_t rank = agents_[static_cast<size_t>(agent)].rank;
  const bool is_word = target.word < static_cast<uint32_t>(words_a_rank_ - 1);
  if (!is_word || target.to.value < 0 || target.to.value >= topology_.ranks ||
      !topology_.same_node(Rank{rank}, target.to)) {
    add_violation(ViolationKind::bad_command, rank, agent,
                  fmt::format("stores word {} of rank {}: no such word, or a rank of another node", target.word,
                              target.to.value));
    return;
  }
  const int32_t call = ranks_[static_cast<size_t>(rank)].call;
  const int64_t word = word_at(target.to.value, target.word);
  note_signal(word, call, agent, rank);
  set_word(word, program_->epoch(call), call);
}

void World::set_word(int64_t at, Epoch value, int32_t call) {
  WordState& w = words_.at(at);
  const int64_t index = at % words_a_rank_;
  const int32_t rank = static_cast<int32_t>(at / words_a_rank_);
  if (value < value_of(w)) {
    add_violation(ViolationKind::word_went_back, rank, -1,
                  fmt::format("word {} fell from {} to {}", index, value_of(w), value), at);
  }
  const bool is_done = program_->arena.flags.is_done(static_cast<uint32_t>(index));
  if (!is_done && ranks_[static_cast<size_t>(rank)].done_call >= call) {
    add_violation(ViolationKind::done_too_early, rank, -1,
                  fmt::format("word {} of call {} lands after the rank said done", index, program_->epoch(call)), at);
  }
  w.reached = reached_by(value);
  wake(at);
}

// An agent says done: all of the rank's roles must have finished, and what was sent a call ago must have landed.
void World::check_done(int32_t agent) {
  const int32_t rank = agents_[static_cast<size_t>(agent)].rank;
  RankState& r = ranks_[static_cast<size_t>(rank)];
  if (r.done_call == r.call) return;
  r.done_call = r.call;
  for (int32_t a = agent_base_[static_cast<size_t>(rank)];
       a < static_cast<int32_t>(agents_.size()) && agents_[static_cast<size_t>(a)].rank == rank; ++a) {
    const AgentState& s = agents_[static_cast<size_t>(a)];
    if (a == agent || s.agent == nullptr || s.is_finished || s.agent->place.stage >= kDoneStage) continue;
    add_violation(ViolationKind::done_too_early, rank, a, "still at work when its rank says done");
  }
  const Epoch sent = word_value(word_at(rank, FlagLayout::sent()));
  if (program_->rings > 0 && sent + 1 < program_->epoch(r.call)) {
    add_violation(ViolationKind::done_too_early, rank, agent,
                  fmt::format("says done({}) without sent({}); sent is {}", program_->epoch(r.call),
                              program_->epoch(r.call) - 1, sent),
                  word_at(rank, FlagLayout::sent()));
  }
}

// At the end of a call: done was published to every member of the set, and theirs awaited.
void World::check_done_set(int32_t rank) {
  const int32_t call = ranks_[static_cast<size_t>(rank)].call;
  for (int32_t p = 0; p < topology_.ranks; ++p) {
    if (p == rank || !topology_.ends_together(Rank{rank}, Rank{p})) continue;
    const int64_t mine = word_at(rank, program_->arena.flags.done(Rank{p}));
    const int64_t theirs = word_at(p, program_->arena.flags.done(Rank{rank}));
    if (words_.seen(theirs).posted != call + 1) {
      add_violation(ViolationKind::done_set, rank, -1,
                    fmt::format("ends the call without done to rank {}, a member of its set", p), theirs);
    }
    if (words_.seen(mine).acquired != call + 1) {
      add_violation(ViolationKind::done_set, rank, -1,
                    fmt::format("ends the call without waiting for done of rank {}, a member of its set", p), mine);
    }
  }
}

// Behind the last call nothing moves and every word is at the epoch of its last signal, seen by its reader.
void World::check_rest() {
  const auto last = static_cast<int32_t>(program_->calls.size());
  for (int32_t r = 0; r < topology_.ranks; ++r) {
    for (int32_t i = 0; i < program_->rings; ++i) {
      if (ring(r, i).call == last) continue;
      add_violation(ViolationKind::missing_call_end, r, -1,
                    fmt::format("call_end({}) never came on ring {}", program_->epoch(ring(r, i).call), i));
    }
    if (program_->rings > 0 && ranks_[static_cast<size_t>(r)].sent_call != last) {
      add_violation(
          ViolationKind::not_at_rest, r, -1,
          fmt::format("sent({}) was never published", program_->epoch(ranks_[static_cast<size_t>(r)].sent_call)));
    }
  }
  if (free_messages_.size() != messages_.size()) {
    add_violation(ViolationKind::not_at_rest, 0, -1,
                  fmt::format("{} messages are still in flight", messages_.size() - free_messages_.size()));
  }
  words_.for_each([&](int64_t at, const WordState& w) {
    if (w.posted == 0) return;  // most of them
    const int64_t index = at % words_a_rank_;
    if (index == words_a_rank_ - 1) return;
    const int32_t rank = static_cast<int32_t>(at / words_a_rank_);
    if (w.posted != w.acquired) {
      add_violation(ViolationKind::signal_without_wait, rank, -1,
                    fmt::format("nobody waited for word {} in call {}", index, program_->epoch(w.posted - 1)), at);
    }
    if (w.reached != w.posted) {
      add_violation(ViolationKind::not_at_rest, rank, -1,
                    fmt::format("word {} rests at {}, not at {}", index, value_of(w), program_->epoch(w.posted - 1)),
                    at);
    }
  });
}

}  // namespace tilewire

#include "schedule/simulator/world.h"

#include <algorithm>

#include "base/check.h"
#include "schedule/simulator/deadlock.h"

namespace tilewire {
namespace {

void check_program(const SimProgram& program) {
  TILEWIRE_CHECK_LE(program.calls.size(), size_t{60000}, ErrorKind::invalid_argument, "calls of one simulation");
  TILEWIRE_CHECK_EQ(program.arena.flags.ranks, program.ranks(), ErrorKind::invalid_argument, "flag layout");
  TILEWIRE_CHECK(program.first_epoch > 1, ErrorKind::invalid_argument,
                 "first epoch {} leaves no earlier one to wait for", program.first_epoch);
}

}  // namespace

World::World(const SimProgram& program, const SimOptions& options)
    : program_(&program),
      options_(&options),
      topology_(program.topology.view()),
      words_a_rank_(program.arena.flags.words() + 1),
      words_(program.ranks() * words_a_rank_) {
  check_program(program);
  const size_t ranks = static_cast<size_t>(program.ranks());
  ranks_.resize(ranks);
  int32_t agents = 0;
  int64_t cursor_bytes = 0;
  for (size_t r = 0; r < ranks; ++r) {
    const Rank rank{static_cast<int32_t>(r)};
    size_t most_agents = 0;
    int64_t most_bytes = 0;
    for (const SimCall& c : program.calls) {
      most_agents = std::max(most_agents, c.agents(rank).size());
      most_bytes = std::max(most_bytes, c.cursor_bytes(rank));
    }
    agent_base_.push_back(agents);
    cursor_base_.push_back(cursor_bytes);
    agents += static_cast<int32_t>(most_agents);
    cursor_bytes += most_bytes;
  }
  agents_.resize(static_cast<size_t>(agents));
  for (size_t r = 0; r < ranks; ++r) {
    const size_t end = r + 1 < ranks ? static_cast<size_t>(agent_base_[r + 1]) : agents_.size();
    for (size_t a = static_cast<size_t>(agent_base_[r]); a < end; ++a) agents_[a].rank = static_cast<int32_t>(r);
  }
  cursors_.resize(static_cast<size_t>(cursor_bytes));
  rings_.resize(ranks * static_cast<size_t>(program.rings));
  if (options.network == SimNetwork::ordered) channels_.resize(ranks * ranks * static_cast<size_t>(options.nics));
  for (size_t r = 0; r < ranks; ++r) relays_.push_back({.role = RelayRole(Rank{static_cast<int32_t>(r)}, 0)});
  outstanding_.resize(ranks * program.calls.size());
  memory_.resize(ranks * 3);
  tiles_.resize(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    if (program.calls.empty()) {
      ++ranks_finished_;
    } else {
      list(SimStep::start_call, static_cast<int32_t>(r));
    }
  }
}

void World::fire(SimEvent event) {
  ++report_.events;
  switch (event.step) {
    case SimStep::start_call: return start_call(event.index);
    case SimStep::acquire: return acquire(event.index);
    case SimStep::work: return work(event.index);
    case SimStep::publish: return publish(event.index);
    case SimStep::post: return post(event.index);
    case SimStep::land: return land(event.index);
    case SimStep::arrive: return arrive(event.index);
    case SimStep::relay: return relay(event.index);
    case SimStep::complete: return complete(event.index);
    case SimStep::publish_sent: return publish_sent(event.index);
  }
}

int32_t World::rank_of(SimEvent event) const {
  switch (event.step) {
    case SimStep::start_call:
    case SimStep::relay:
    case SimStep::publish_sent: return event.index;
    case SimStep::acquire:
    case SimStep::work:
    case SimStep::publish: return agents_[static_cast<size_t>(event.index)].rank;
    case SimStep::post: return event.index / program_->rings;
    case SimStep::arrive: return messages_[static_cast<size_t>(event.index)].command.peer.value;
    case SimStep::land:
    case SimStep::complete: return messages_[static_cast<size_t>(event.index)].from;
  }
  return 0;
}

void World::add_violation(ViolationKind kind, int32_t rank, int32_t agent, std::string text, int64_t word,
                          int64_t begin, int64_t end) {
  if (has_failed()) return;
  Violation v;
  v.kind = kind;
  v.rank = Rank{rank};
  if (agent >= 0) {
    const AgentState& s = agents_[static_cast<size_t>(agent)];
    v.role = s.agent->place.role;
    v.worker = s.agent->place.worker;
  }
  v.epoch = program_->epoch(std::max(0, ranks_[static_cast<size_t>(rank)].call));
  v.word = word < 0 ? -1 : word % words_a_rank_;
  v.begin_bytes = begin;
  v.end_bytes = end;
  v.text = std::move(text);
  report_.violations.push_back(std::move(v));
}

const PlantedFault* World::planted(SimFault fault, int32_t agent, int32_t piece, int64_t word) const {
  const AgentState& s = agents_[static_cast<size_t>(agent)];
  for (const PlantedFault& f : options_->faults) {
    if (f.fault != fault || f.role != s.agent->place.role || (f.rank >= 0 && f.rank != s.rank)) continue;
    if (f.word >= 0 ? f.word == word : (f.nth < 0 || f.nth == piece)) return &f;
  }
  return nullptr;
}

void World::judge_end() {
  if (is_finished()) {
    check_rest();
  } else {
    explain_standstill(*this);
  }
}

namespace {

struct Hasher {
  uint64_t value = 0x9e3779b97f4a7c15u;
  void add(uint64_t v) {
    value = (value ^ v) * 0xff51afd7ed558ccdu;
    value ^= value >> 32;
  }
};

uint64_t message_hash(const SimMessage& m) {
  Hasher h;
  h.add(static_cast<uint64_t>(m.from) << 32 | static_cast<uint64_t>(m.ring));
  h.add(pack(m.command).first);
  h.add(pack(m.command).second);
  h.add(static_cast<uint64_t>(m.posted_call) << 3 | (m.has_data_landed ? 1u : 0u) | (m.has_flag_landed ? 2u : 0u) |
        (m.is_complete ? 4u : 0u));
  for (const Segment& p : m.pieces) {
    h.add(p.content);
    h.add(static_cast<uint64_t>(p.origin - p.begin));
  }
  return h.value;
}

}  // namespace

uint64_t World::hash() const {
  Hasher h;
  for (const RankState& r : ranks_) {
    h.add(static_cast<uint64_t>(r.call + 1) << 32 | static_cast<uint64_t>(r.calls_finished));
    h.add(static_cast<uint64_t>(r.done_call + 1) << 32 | static_cast<uint64_t>(r.sent_call));
  }
  for (const AgentState& a : agents_) {
    h.add(static_cast<uint64_t>(a.acquired) << 40 | static_cast<uint64_t>(a.worked) << 20 |
          static_cast<uint64_t>(a.published));
    h.add(static_cast<uint64_t>(a.need) << 1 | (a.is_finished ? 1u : 0u));
  }
  words_.for_each([&](int64_t word, const WordState& w) {
    if (w.reached == 0 && w.posted == 0) return;  // not yet touched
    h.add(static_cast<uint64_t>(word) << 32 | static_cast<uint64_t>(w.posted) << 16 | w.acquired);
    h.add(w.reached);
  });
  for (const ShadowMemory& m : memory_) {
    for (const Segment& s : m.segments()) {
      h.add(static_cast<uint64_t>(s.begin));
      h.add(s.content ^ static_cast<uint64_t>(s.end - s.origin));
    }
  }
  // Messages have no order but that of their ring or channel.
  uint64_t loose = 0;
  for (const RingState& r : rings_) {
    for (int32_t m = r.first; m >= 0; m = messages_[static_cast<size_t>(m)].next) {
      h.add(message_hash(messages_[static_cast<size_t>(m)]));
    }
    h.add(static_cast<uint64_t>(r.call));
  }
  for (const ChannelState& c : channels_) {
    for (int32_t m = c.first; m >= 0; m = messages_[static_cast<size_t>(m)].next) {
      h.add(message_hash(messages_[static_cast<size_t>(m)]));
    }
    h.add(1);
  }
  for (const SimMessage& m : messages_) {
    if (m.from >= 0) loose += message_hash(m);
  }
  h.add(loose);
  return h.value;
}

}  // namespace tilewire

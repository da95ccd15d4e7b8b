// When the chunks of a call are expected at the ranks of one node: the roles that move them walked on a clock, without
// words, tiles and checks. For planners of any op; the simulator (simulator/timed_run.h) walks all roles of all ranks,
// and both take what a piece of work costs from the same Machine.
//
// What the clock asks of an op, beside its Schedule (TransferSchedule):
//   for_each_role(schedule, cursors, visit)            the list of roles; each worker of each role is one agent
//   int64_t transfer_bytes(const Schedule&, const Work&)    for the Work of each role that moves something; roles whose
//                                                      Work has none (tiles, drain) are left out
//   Schedule schedule_of(const Schedule&, Rank)        what another rank walks
// A piece of work begins when its agent is free and the words that it needs are there; it is a command, or a copy to
// whom its first publish goes to.
//
// Left out: waiting for call records, what a call before has left, and what the ranks of other nodes do to one another
// (of those each rank is walked by itself, so an agent that waits for another rank there does not begin).
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "schedule/call_roles.h"
#include "schedule/machine.h"

namespace tilewire {

template <class Schedule>
concept TransferSchedule = requires(const Schedule& schedule, Rank rank) {
  { schedule.frame } -> std::convertible_to<CallFrame>;
  { schedule_of(schedule, rank) } -> std::same_as<Schedule>;
};

// When each word of a rank is there. Words of the call itself (begun, done, sent) are from the start.
class WordTimes {
 public:
  static constexpr double kNever = std::numeric_limits<double>::max();

  explicit WordTimes(const FlagLayout& flags) : first_(flags.chunk(0, Rank{0}, Chunk{0})) {}

  double at_s(uint32_t word) const {
    if (word < first_ || word == FlagLayout::sent()) return 0;
    return word - first_ < at_s_.size() ? at_s_[word - first_] : kNever;
  }
  void set(uint32_t word, double at_s) {
    if (word - first_ >= at_s_.size()) at_s_.resize(size_t{word - first_} + 1, kNever);
    at_s_[word - first_] = at_s;
    set_.push_back(word);
  }
  void clear() {
    for (const uint32_t word : set_) at_s_[word - first_] = kNever;
    set_.clear();
  }

 private:
  uint32_t first_;
  std::vector<double> at_s_;
  std::vector<uint32_t> set_;
};

template <TransferSchedule Schedule>
class TransferClock {
 public:
  // Walks it all. Of `s` any rank will do.
  TransferClock(const Schedule& s, Node node, const Machine& machine)
      : s_(s), node_(node), m_(machine), width_(static_cast<size_t>(topology().ranks_on(node))) {
    words_.assign(width_, WordTimes(s.frame.arena.flags));
    send_all();
    land_all();
    move_all();
  }

  // Seconds after the start of the call when a role of `rank`, which is of the node, can use what the word stands for;
  // WordTimes::kNever where nobody delivers it.
  double at_s(Rank rank, uint32_t word) const { return words_[local(rank)].at_s(word); }

 private:
  // A command that a rank of another node has for one of this node.
  struct Sent {
    Rank to;
    uint32_t word = 0;
    int64_t bytes = 0;
    double posted_s = 0;
    double left_s = 0;  // the last byte, from the sender's port
  };
  // The piece of work that an agent stands at.
  struct Piece {
    Rank to;
    uint32_t word = 0;
    int64_t bytes = 0;
    bool is_command = false;
  };
  class Agent {
   public:
    explicit Agent(Rank of) : rank(of) {}
    virtual ~Agent() = default;
    virtual bool next() = 0;
    virtual Piece piece() const = 0;
    virtual double needs_s(const WordTimes& words) const = 0;

    Rank rank;
    double free_s = 0;
    bool has_work = false;
  };
  using Agents = std::vector<std::unique_ptr<Agent>>;
  template <class Role>
  class RoleAgent;

  static double seconds(int64_t bytes, double bytes_per_s) { return static_cast<double>(bytes) / bytes_per_s; }
  Topology topology() const { return s_.frame.topology; }
  size_t local(Rank r) const { return static_cast<size_t>(topology().local(r).value); }

  // The agents of a rank that move something; without those that only give commands, unless `with_senders`.
  void add_agents(const Schedule& of, bool with_senders, Agents& agents) const;
  // The agent that begins first, and when; of equals the first one. Null where none can begin.
  template <class WordsOf>
  Agent* first_of(const Agents& agents, const WordsOf& words_of, double& first_s) const;

  // A rank's proxy, which takes the call records first.
  Lane behind_records(const CallFrame& frame) const {
    Lane proxy;
    double free_s = 0;
    CallWork w;
    for (BeginRole begin(frame); begin.next(w);) {
      free_s += m_.step_s;
      if (w.by_command) proxy.take(free_s, m_.command_s);
    }
    return proxy;
  }
  void send_all();
  void send_all(Rank r, WordTimes& words);
  void land_all();
  void move_all();

  const Schedule& s_;
  Node node_;
  Machine m_;
  size_t width_;
  std::vector<WordTimes> words_;  // by local rank
  std::vector<Sent> sent_;
};

template <TransferSchedule Schedule>
template <class Role>
class TransferClock<Schedule>::RoleAgent final : public Agent {
 public:
  RoleAgent(const Schedule& of, const Role& role) : Agent(of.frame.me), schedule_(of), role_(role) {
    this->has_work = next();
  }
  bool next() override { return this->has_work = role_.next(work_); }
  Piece piece() const override {
    const int64_t bytes = transfer_bytes(schedule_, work_);
    if constexpr (requires { work_.command; }) {
      bool is_command = true;
      if constexpr (requires { work_.by_command; }) is_command = work_.by_command;
      if (is_command && work_.command.kind == CommandKind::call_end) return {this->rank, 0, 0, true};
      if (is_command) return {work_.command.peer, work_.command.word, bytes, true};
    }
    const Publish publish = role_.publish(work_, 0);
    return {publish.to, publish.word, bytes, false};
  }
  double needs_s(const WordTimes& words) const override {
    double at_s = 0;
    for (int32_t i = 0; i < work_.needs; ++i) {
      const Need need = role_.need(work_, i);
      if (need.lag == 0) at_s = std::max(at_s, words.at_s(need.word));
    }
    return at_s;
  }

 private:
  const Schedule& schedule_;
  Role role_;
  typename Role::Work work_;
};

template <TransferSchedule Schedule>
void TransferClock<Schedule>::add_agents(const Schedule& of, bool with_senders, Agents& agents) const {
  for_each_role(of, Cursors{}, [&]<class Role>(const AgentPlace&, const Role& role) {
    using Work = typename Role::Work;
    constexpr bool moves = requires(const Work& w) { transfer_bytes(of, w); };
    if constexpr (moves) {
      constexpr bool only_commands = requires(const Work& w) { w.command; }
      &&!requires(const Work& w) { w.by_command; };
      if (only_commands && !with_senders) return;
      agents.push_back(std::make_unique<RoleAgent<Role>>(of, role));
    }
  });
}

template <TransferSchedule Schedule>
template <class WordsOf>
typename TransferClock<Schedule>::Agent* TransferClock<Schedule>::first_of(const Agents& agents,
                                                                           const WordsOf& words_of,
                                                                           double& first_s) const {
  Agent* first = nullptr;
  first_s = WordTimes::kNever;
  for (const std::unique_ptr<Agent>& agent : agents) {
    if (!agent->has_work) continue;
    const double at_s = std::max(agent->free_s, agent->needs_s(words_of(agent->rank)));
    if (at_s >= first_s) continue;
    first = agent.get();
    first_s = at_s;
  }
  return first;
}

template <TransferSchedule Schedule>
void TransferClock<Schedule>::send_all() {
  WordTimes words(s_.frame.arena.flags);
  for (int32_t r = 0; r < topology().ranks; ++r) {
    if (topology().node(Rank{r}) == node_) continue;
    send_all(Rank{r}, words);
    words.clear();
  }
}

// What a rank of another node does until its last command is posted.
template <TransferSchedule Schedule>
void TransferClock<Schedule>::send_all(Rank r, WordTimes& words) {
  const Schedule of = schedule_of(s_, r);
  Agents agents;
  add_agents(of, true, agents);
  Lane proxy = behind_records(of.frame), port, to_node;
  double begin_s = 0;
  while (Agent* agent = first_of(
             agents, [&](Rank) -> const WordTimes& { return words; }, begin_s)) {
    const Piece piece = agent->piece();
    if (piece.is_command) {
      agent->free_s = begin_s + m_.step_s;
      const double posted_s = proxy.take(agent->free_s, m_.command_s);
      const double left_s = port.take(posted_s, seconds(piece.bytes, m_.network_bytes_per_s));
      if (topology().node(piece.to) == node_) sent_.push_back({piece.to, piece.word, piece.bytes, posted_s, left_s});
    } else if (piece.to == r) {
      agent->free_s = begin_s + seconds(piece.bytes, m_.copy_bytes_per_s) + m_.step_s;
      words.set(piece.word, agent->free_s + m_.node_latency_s);
    } else {
      agent->free_s = to_node.take(begin_s, seconds(piece.bytes, m_.node_bytes_per_s)) + m_.step_s;
    }
    agent->next();
  }
}

template <TransferSchedule Schedule>
void TransferClock<Schedule>::land_all() {
  std::stable_sort(sent_.begin(), sent_.end(), [](const Sent& a, const Sent& b) { return a.posted_s < b.posted_s; });
  std::vector<Lane> ports(width_), proxies(width_);
  for (const Sent& m : sent_) {
    const double in_s = ports[local(m.to)].take(m.posted_s, seconds(m.bytes, m_.network_bytes_per_s));
    const double landed_s = std::max(m.left_s, in_s) + m_.network_latency_s;
    words_[local(m.to)].set(m.word, proxies[local(m.to)].take(landed_s, m_.command_s));
  }
}

// Local copies in the order of their begins.
template <TransferSchedule Schedule>
void TransferClock<Schedule>::move_all() {
  std::vector<Schedule> schedules;
  schedules.reserve(width_);
  Agents agents;
  for (size_t l = 0; l < width_; ++l) {
    schedules.push_back(schedule_of(s_, topology().rank_at(node_, LocalRank{static_cast<int32_t>(l)})));
    add_agents(schedules.back(), false, agents);
  }
  std::vector<Lane> out(width_), in(width_);
  double begin_s = 0;
  while (Agent* agent = first_of(
             agents, [&](Rank r) -> const WordTimes& { return words_[local(r)]; }, begin_s)) {
    const Piece piece = agent->piece();
    if (piece.is_command) {
      agent->free_s = begin_s + m_.step_s;
    } else {
      double end_s = begin_s + seconds(piece.bytes, m_.copy_bytes_per_s);
      if (piece.to != agent->rank) {
        const double on_link_s = seconds(piece.bytes, m_.node_bytes_per_s);
        end_s =
            std::max(out[local(agent->rank)].take(begin_s, on_link_s), in[local(piece.to)].take(begin_s, on_link_s));
      }
      agent->free_s = end_s + m_.step_s;
      words_[local(piece.to)].set(piece.word, agent->free_s + m_.node_latency_s);
    }
    agent->next();
  }
}

}  // namespace tilewire

#include "schedule/simulator/timed_run.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "schedule/simulator/world.h"

namespace tilewire {
namespace {

struct TimedEvent {
  double at_s = 0;
  int64_t number = 0;  // events of one time keep their order
  SimEvent event;
  bool begins_transfers = false;  // of a piece of work, whose end is still to come
};
struct IsLater {
  bool operator()(const TimedEvent& a, const TimedEvent& b) const {
    return a.at_s != b.at_s ? a.at_s > b.at_s : a.number > b.number;
  }
};

// Events in the order of their times; events of one time in the order in which they came. Most events are due at once
// and come in order, so they wait in a line of their own.
class EventQueue {
 public:
  void push(double now_s, double at_s, SimEvent event, bool begins_transfers = false) {
    const TimedEvent timed{at_s, number_++, event, begins_transfers};
    if (at_s <= now_s) {
      at_once_.push_back(timed);
    } else {
      later_.push(timed);
    }
  }
  bool is_empty() const { return next_ == at_once_.size() && later_.empty(); }
  TimedEvent pop() {
    const bool has_line = next_ < at_once_.size();
    if (has_line && (later_.empty() || IsLater()(later_.top(), at_once_[next_]))) {
      const TimedEvent first = at_once_[next_++];
      if (next_ == at_once_.size()) {
        at_once_.clear();
        next_ = 0;
      }
      return first;
    }
    const TimedEvent first = later_.top();
    later_.pop();
    return first;
  }

 private:
  std::priority_queue<TimedEvent, std::vector<TimedEvent>, IsLater> later_;
  std::vector<TimedEvent> at_once_;  // from next_ on
  size_t next_ = 0;
  int64_t number_ = 0;
};

// What an agent is at, from the begin of a piece of work to its end.
struct Busy {
  double own_s = 0;  // what it reads, computes and writes in its own rank
  double last_end_s = 0;
  bool makes_tile = false;
  bool has_transfers = false;  // to peers of its node, when all that is over
  bool is_seen = false;        // in a timeline
  TraceEvent event{};
};

int64_t to_ns(double seconds) { return std::llround(seconds * 1e9); }

SimOptions timed_options(const CostModel& costs) {
  SimOptions options;
  options.network = SimNetwork::counted;  // messages overlap; what keeps their order does not matter for time
  options.nics = costs.nics;
  options.checks_memory = costs.checks_rules;
  return options;
}

class Clockwork {
 public:
  Clockwork(const SimProgram& program, const CostModel& costs)
      : costs_(costs), options_(timed_options(costs)), world_(program, options_) {
    const size_t ranks = static_cast<size_t>(program.ranks());
    for (auto* lanes : {&node_out_, &node_in_, &proxies_}) lanes->resize(ranks);
    for (auto* lanes : {&nic_out_, &nic_in_}) lanes->resize(ranks * static_cast<size_t>(costs.nics));
    busy_.resize(world_.agents().size());
    report_.rank_end_s.resize(ranks);
  }

  TimedReport run() {
    schedule_all({});
    while (!queue_.is_empty() && !world_.has_failed()) {
      const TimedEvent next = queue_.pop();
      now_s_ = next.at_s;
      if (next.begins_transfers) {
        queue_.push(now_s_, transfers_end_s(next.event.index), next.event);
        continue;
      }
      before(next.event);
      world_.fire(next.event);
      schedule_all(next.event);
    }
    if (!world_.has_failed()) world_.judge_end();
    report_.seconds = *std::max_element(report_.rank_end_s.begin(), report_.rank_end_s.end());
    report_.rules = std::move(world_.report());
    return std::move(report_);
  }

 private:
  Lane& nic(std::vector<Lane>& lanes, int32_t rank, uint32_t word) {
    const auto nics = static_cast<uint32_t>(costs_.nics);
    return lanes[static_cast<size_t>(rank) * nics + word % nics];
  }

  // What an event ends.
  void before(const SimEvent& e) {
    if (e.step != SimStep::work && e.step != SimStep::publish) return;
    const int32_t rank = world_.rank_of(e);
    report_.rank_end_s[static_cast<size_t>(rank)] = now_s_;
    if (e.step == SimStep::work) end_work(e.index);
  }

  void schedule_all(const SimEvent& cause) {
    std::vector<SimEvent>& possible = world_.possible();
    for (const SimEvent& e : possible) {
      const double at_s = time_of(e, cause);
      queue_.push(now_s_, at_s, e, e.step == SimStep::work && has_transfers(e.index));
    }
    possible.clear();
  }

  double time_of(const SimEvent& e, const SimEvent& cause) {
    const Machine& m = costs_.machine;
    switch (e.step) {
      case SimStep::acquire: return now_s_ + (is_woken(e, cause) ? m.node_latency_s : 0);
      case SimStep::work: return begin_work(e.index);
      case SimStep::post:
      case SimStep::arrive: return proxies_[static_cast<size_t>(world_.rank_of(e))].take(now_s_, m.command_s);
      case SimStep::land: return send(e.index);
      case SimStep::complete: return now_s_ + m.network_latency_s;
      case SimStep::start_call:
      case SimStep::relay:
      case SimStep::publish:
      case SimStep::publish_sent: return now_s_;
    }
    return now_s_;
  }

  // Whether another agent's signal let it go on; then the signal had to travel.
  bool is_woken(const SimEvent& e, const SimEvent& cause) const {
    return cause.step == SimStep::publish && cause.index != e.index;
  }

  // Until when the agent is at what it reads, computes and writes in its own rank. Only then is there something to hand
  // to a peer.
  double begin_work(int32_t agent) {
    world_.describe_work(agent, touch_);
    Busy& b = busy_[static_cast<size_t>(agent)];
    b.event = event_of(agent);
    b.event.t_begin_ns = to_ns(now_s_);
    b.event.t_wait_ns = to_ns(now_s_ - b.last_end_s);
    b.makes_tile = touch_.tile() >= 0;
    b.is_seen = b.makes_tile || !touch_.accesses().empty();
    const int32_t rank = world_.agents()[static_cast<size_t>(agent)].rank;
    const Machine& m = costs_.machine;
    b.own_s =
        m.step_s + touch_.flops() / m.worker_flops + static_cast<double>(touch_.charged_bytes()) / m.copy_bytes_per_s;
    b.has_transfers = false;
    for (const Access& a : touch_.accesses()) {
      if (a.kind == Access::Kind::read) continue;
      if (a.to.rank.value == rank) {
        b.own_s += static_cast<double>(a.to.bytes) / m.copy_bytes_per_s;
      } else {
        b.has_transfers = true;
      }
    }
    return now_s_ + b.own_s;
  }
  bool has_transfers(int32_t agent) const { return busy_[static_cast<size_t>(agent)].has_transfers; }

  // All of them begin now.
  double transfers_end_s(int32_t agent) {
    world_.describe_work(agent, touch_);
    const int32_t rank = world_.agents()[static_cast<size_t>(agent)].rank;
    double end_s = now_s_;
    for (const Access& a : touch_.accesses()) {
      const bool is_transfer = a.kind != Access::Kind::read && a.to.rank.value != rank;
      if (is_transfer) end_s = std::max(end_s, move(rank, a.to.rank.value, a.to.bytes));
    }
    return end_s;
  }

  double move(int32_t from, int32_t to, int64_t bytes) {
    const double size = static_cast<double>(bytes);
    const double on_link = size / costs_.machine.node_bytes_per_s;
    double end_s = std::max(node_out_[static_cast<size_t>(from)].take(now_s_, on_link),
                            node_in_[static_cast<size_t>(to)].take(now_s_, on_link));
    if (costs_.worker_copy_bytes_per_s > 0) end_s = std::max(end_s, now_s_ + size / costs_.worker_copy_bytes_per_s);
    return end_s;
  }

  double send(int32_t message) {
    const SimMessage& m = world_.messages()[static_cast<size_t>(message)];
    const int64_t bytes = m.command.kind == CommandKind::write ? int64_t{m.command.units} * kWireUnitBytes : 0;
    const double rate = costs_.machine.network_bytes_per_s / costs_.nics;
    const double on_link = static_cast<double>(bytes) / rate;
    const double end_s = std::max(nic(nic_out_, m.from, m.command.word).take(now_s_, on_link),
                                  nic(nic_in_, m.command.peer.value, m.command.word).take(now_s_, on_link)) +
                         costs_.machine.network_latency_s;
    report_.link_bytes[static_cast<size_t>(TraceLink::network)] += bytes;
    if (costs_.keeps_trace && bytes > 0) trace_message(m, end_s);
    return end_s;
  }

  void trace_message(const SimMessage& m, double end_s) {
    const FlagLayout& flags = world_.program().arena.flags;
    TraceEvent t{.rank = m.from,
                 .role = "in flight",
                 .worker = static_cast<int32_t>(m.command.word % static_cast<uint32_t>(costs_.nics)),
                 .name = "record",
                 .source = m.from,
                 .t_begin_ns = to_ns(now_s_),
                 .t_end_ns = to_ns(end_s),
                 .bytes = 0,  // the sender's event has them
                 .link = TraceLink::network};
    if (!flags.is_begun(m.command.word)) {
      const int64_t chunk = int64_t{m.command.word} - 2 * int64_t{flags.ranks};
      t.name = "chunk";
      t.work = chunk % flags.max_chunks;
      t.source = static_cast<int32_t>(chunk / flags.max_chunks % flags.ranks);
    }
    report_.trace.push_back(t);
  }

  void end_work(int32_t agent) {
    Busy& b = busy_[static_cast<size_t>(agent)];
    b.last_end_s = now_s_;
    if (b.makes_tile) report_.compute_busy_s += b.own_s;
    // What goes over the network is counted where it is sent.
    if (b.event.link == TraceLink::copy || b.event.link == TraceLink::node) {
      report_.link_bytes[static_cast<size_t>(b.event.link)] += b.event.bytes;
    }
    if (!costs_.keeps_trace || !b.is_seen) return;
    b.event.t_end_ns = to_ns(now_s_);
    report_.trace.push_back(b.event);
  }

  TraceEvent event_of(int32_t agent) const {
    const AgentState& s = world_.agents()[static_cast<size_t>(agent)];
    TraceEvent t{.rank = s.rank, .role = s.agent->place.role, .worker = s.agent->place.worker, .name = "record"};
    if (!touch_.accesses().empty()) {
      const Access& a = touch_.accesses().front();
      t.source = a.content.source.value;
      if (a.content.family != kRecordFamily) {
        t.name = "chunk";
        t.work = a.content.chunk;
      }
      if (a.kind != Access::Kind::read) {
        t.bytes = a.to.bytes;
        t.link = a.to.rank.value == s.rank ? TraceLink::copy : TraceLink::node;
      } else if (touch_.tile() < 0 && world_.gives_command(agent)) {
        t.bytes = a.from.bytes;
        t.link = TraceLink::network;
      }
    }
    if (touch_.tile() >= 0) {
      t.name = "tile";
      t.work = touch_.tile();
    }
    return t;
  }

  CostModel costs_;
  SimOptions options_;
  World world_;
  EventQueue queue_;
  double now_s_ = 0;
  std::vector<Lane> node_out_, node_in_, proxies_, nic_out_, nic_in_;
  std::vector<Busy> busy_;
  Touch touch_;
  TimedReport report_;
};

}  // namespace

TimedReport run_timed(const SimProgram& program, const CostModel& costs) { return Clockwork(program, costs).run(); }

}  // namespace tilewire

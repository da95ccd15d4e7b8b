// The state of all ranks, and every step that it can take next. It knows agents, words, memory, command rings, messages
// and the rules that must hold; it does not know who picks the steps: a random walk, a search or a clock. A step that
// is possible once stays possible until it is taken. Copyable; not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/simulator/report.h"
#include "schedule/simulator/shadow_memory.h"
#include "schedule/relay_role.h"
#include "schedule/simulator/sim_options.h"
#include "schedule/simulator/sim_program.h"
#include "schedule/simulator/touch.h"
#include "schedule/simulator/word_table.h"

namespace tilewire {

enum class SimStep : uint8_t {
  start_call,    // a rank begins its next call
  acquire,       // an agent has seen all needs of its next piece of work and starts to read
  work,          // an agent ends a piece of work: its writes are at their destination
  publish,       // an agent publishes for a piece of work, or gives its command
  post,          // a proxy takes the next command of a ring
  land,          // a message, or its data or its flag, reaches its destination
  arrive,        // the receiver's proxy puts a counted arrival into its arrival ring
  relay,         // the receiver's relay role takes the next arrival and publishes its word
  complete,      // the sender sees the completion
  publish_sent,  // the proxy publishes sent(e)
};

inline constexpr size_t kSimSteps = static_cast<size_t>(SimStep::publish_sent) + 1;

// `index` is a rank (start_call, relay, publish_sent), an agent, a ring or a message.
struct SimEvent {
  SimStep step = SimStep::start_call;
  int32_t index = 0;
};

struct AgentState {
  const Agent* agent = nullptr;
  const std::byte* model = nullptr;
  int32_t rank = 0;
  int32_t loaded = 0;  // pieces of work the wait cursor has come to; then those acquired, worked and published
  int32_t acquired = 0;
  int32_t worked = 0;
  int32_t published = 0;
  int32_t need = 0;  // next need of the piece of work at the wait cursor
  int32_t needs = 0;
  int32_t load_ahead = 0;
  int32_t publish_behind = 0;
  int32_t next_waiter = 0;  // agent + 1
  int64_t waits_for = -1;   // word
  bool is_at_end = false;
  bool is_finished = true;
  bool is_listed[3] = {false, false, false};  // acquire, work, publish
};

struct RankState {
  int32_t call = -1;  // call in progress or ended last
  int32_t stage = 0;
  int32_t unfinished = 0;  // agents of the call
  int32_t stage_left = 0;  // unfinished agents of the stage
  int32_t next_agent = 0;  // first agent not yet begun
  int32_t calls_finished = 0;
  int32_t done_call = -1;  // last call in which done was published
  int32_t sent_call = 0;   // next call to be reported as sent
  bool is_sent_listed = false;
};

struct RingState {
  int32_t first = -1;  // messages that wait, linked
  int32_t last = -1;
  int32_t call = 0;         // by the proxy's count of call_end
  int32_t ended_call = -1;  // last call whose call_end was given
  int32_t producer = -1;    // agent
  int32_t producer_call = -1;
};

struct SimMessage {
  Command command;
  int32_t from = 0;
  int32_t ring = 0;
  int32_t call = 0;         // of the agent that gave it
  int32_t posted_call = 0;  // as the proxy counts
  int32_t next = -1;
  int32_t channel = -1;
  bool has_data_landed = false;
  bool has_flag_landed = false;
  bool is_complete = false;
  std::vector<Segment> pieces;  // what was read at the source, addresses there
};

struct ChannelState {
  int32_t first = -1;
  int32_t last = -1;
};

// The arrival ring of a rank, linked messages, and the role that drains it.
struct RelayState {
  RelayRole role{Rank{0}, 0};
  int32_t first = -1;
  int32_t last = -1;
};

class World {
 public:
  // Both must outlive it.
  World(const SimProgram& program, const SimOptions& options);

  // Steps that became possible since the caller last took them out. A driver moves them elsewhere or fires them.
  std::vector<SimEvent>& possible() { return possible_; }
  const std::vector<SimEvent>& possible() const { return possible_; }
  void fire(SimEvent event);
  bool is_finished() const { return ranks_finished_ == static_cast<int32_t>(ranks_.size()); }
  // Broken rules so far are in report().
  SimReport& report() { return report_; }
  const SimReport& report() const { return report_; }
  bool has_failed() const { return static_cast<int32_t>(report_.violations.size()) >= options_->max_violations; }
  // To be called when nothing is possible any more: rest where all ranks have finished, else the reason of the
  // standstill.
  void judge_end();

  const SimProgram& program() const { return *program_; }
  const SimOptions& options() const { return *options_; }
  const Topology& topology() const { return topology_; }
  int32_t rank_of(SimEvent event) const;
  const std::vector<AgentState>& agents() const { return agents_; }
  const std::vector<RankState>& ranks() const { return ranks_; }
  const std::vector<SimMessage>& messages() const { return messages_; }
  const RingState& ring(int32_t rank, int32_t ring) const {
    return rings_[static_cast<size_t>(rank) * program_->rings + ring];
  }
  Epoch word_value(int64_t word) const { return value_of(words_.seen(word)); }
  // The piece of work that the `work` or `acquire` step of an agent is about.
  void describe_work(int32_t agent, Touch& touch) const;
  bool gives_command(int32_t agent) const;  // that piece of work, to the proxy
  Need current_need(int32_t agent) const;
  int64_t word_at(int32_t rank, uint32_t word) const {
    return int64_t{rank} * words_a_rank_ + (word == FlagLayout::sent() ? words_a_rank_ - 1 : int64_t{word});
  }
  // Equal states have equal hashes, whatever way led to them.
  uint64_t hash() const;
  void add_violation(ViolationKind kind, int32_t rank, int32_t agent, std::string text, int64_t word = -1,
                     int64_t begin = -1, int64_t end = -1);
  const PlantedFault* planted(SimFault fault, int32_t agent, int32_t piece, int64_t word) const;

 private:
  enum Listed { kAcquire = 0, kWork = 1, kPublish = 2 };

  Epoch value_of(const WordState& w) const { return program_->first_epoch - 1 + w.reached; }
  uint16_t reached_by(Epoch value) const { return static_cast<uint16_t>(value + 1 - program_->first_epoch); }

  void list(SimStep step, int32_t index) { possible_.push_back({step, index}); }
  // world_agents.cc
  void start_call(int32_t rank);
  void begin_stage(int32_t rank);
  void begin_agent(int32_t agent, const Agent& what);
  void refresh(int32_t agent);
  void load(int32_t agent);
  bool has_needs(int32_t agent);
  void list_work(int32_t agent);
  void list_publish(int32_t agent);
  void acquire(int32_t agent);
  void work(int32_t agent);
  void publish(int32_t agent);
  void publish_at(int32_t agent, const std::byte* cursor, int32_t piece);
  void finish_agent(int32_t agent);
  void finish_call(int32_t rank);
  void wake(int64_t word);
  // Where the cursors of an agent begin in cursors_.
  size_t wait_cursor_at(const AgentState& s) const;
  size_t work_cursor_at(const AgentState& s) const;
  size_t publish_cursor_at(const AgentState& s) const;
  std::byte* wait_cursor(const AgentState& s) { return cursors_.data() + wait_cursor_at(s); }
  std::byte* work_cursor(const AgentState& s) { return cursors_.data() + work_cursor_at(s); }
  std::byte* publish_cursor(const AgentState& s) { return cursors_.data() + publish_cursor_at(s); }
  // world_network.cc
  void give_command(int32_t agent, const Command& command);
  void post(int32_t ring);
  void end_ring_call(int32_t ring, const SimMessage& m);
  void enter_channel(int32_t message);
  void land(int32_t message);
  void land_ordered(int32_t message);
  void land_data(SimMessage& m);
  void arrive(int32_t message);
  void relay(int32_t rank);
  void complete(int32_t message);
  void publish_sent(int32_t rank);
  void list_sent(int32_t rank);
  int32_t new_message();
  void release_if_over(int32_t message);
  // world_memory.cc
  struct Place {
    int32_t rank = 0;
    int area = 0;  // 0, 1: halves, 2: user
    int64_t begin = 0;
    int64_t end = 0;
  };
  bool locate(const MemoryRange& range, int32_t call, int32_t agent, Place& place);
  int64_t half_base(int32_t call) const;
  ShadowMemory& memory(const Place& p) { return memory_[static_cast<size_t>(p.rank) * 3 + p.area]; }
  void check_read(int32_t agent, const MemoryRange& from, const Content& content);
  void apply_access(int32_t agent, const Access& access);
  void explain_read(int32_t agent, const Place& place, const Segment& expected);
  void land_segment(const Place& place, Segment what, int32_t call, int32_t agent);
  void make_tile(int32_t agent, int64_t tile);
  void check_tiles(int32_t rank);
  // world_checks.cc
  void store_word(int32_t agent, Publish target);
  bool note_signal(int64_t word, int32_t call, int32_t agent, int32_t rank);
  void set_word(int64_t word, Epoch value, int32_t call);
  void check_done(int32_t agent);
  void check_done_set(int32_t rank);
  void check_rest();

  const SimProgram* program_;
  const SimOptions* options_;
  Topology topology_;
  int64_t words_a_rank_;
  int32_t ranks_finished_ = 0;
  std::vector<SimEvent> possible_;
  std::vector<RankState> ranks_;
  std::vector<AgentState> agents_;  // of rank r from agent_base_[r] on
  std::vector<int32_t> agent_base_;
  std::vector<std::byte> cursors_;  // of rank r from cursor_base_[r] on
  std::vector<int64_t> cursor_base_;
  WordTable words_;
  std::vector<RingState> rings_;
  std::vector<SimMessage> messages_;
  std::vector<int32_t> free_messages_;
  std::vector<RelayState> relays_;            // counted networks: by rank
  std::vector<ChannelState> channels_;        // ordered networks: [from][to][nic]
  std::vector<int32_t> outstanding_;          // [rank][call]
  std::vector<ShadowMemory> memory_;          // [rank][area]
  std::vector<std::vector<uint64_t>> tiles_;  // made so far in the call in progress, a bit each, by rank
  Touch touch_;
  std::vector<Segment> found_;
  SimReport report_;
};

}  // namespace tilewire

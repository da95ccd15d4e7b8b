// What the simulator walks: a row of calls on one arena, each with the agents of every rank. Immutable while it is
// walked.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "schedule/arena_layout.h"
#include "schedule/call_roles.h"
#include "schedule/role.h"
#include "schedule/simulator/role_model.h"
#include "schedule/topology_tables.h"

namespace tilewire {

struct Agent {
  AgentPlace place;
  const RoleTable* table = nullptr;
  size_t model_at = 0;        // into SimCall::models
  int64_t cursor_offset = 0;  // into the rank's cursor area
};

// What the caller writes into the user area before the call.
struct UserInput {
  MemoryRange range;
  Content content;
};

class SimCall {
 public:
  explicit SimCall(int32_t ranks) : agents_(static_cast<size_t>(ranks)), tiles_(static_cast<size_t>(ranks), 0) {}

  // Models are copied; tables that they point to must outlive the program.
  template <class Model>
  void add(Rank rank, const AgentPlace& place, const Model& model) {
    const size_t at = models_.size();
    models_.resize(at + (sizeof(Model) + kCursorAlign - 1) / kCursorAlign * kCursorAlign);
    new (models_.data() + at) Model(model);
    add_agent(rank, {place, &kRoleTable<Model>, at, 0});
  }
  void set_tiles(Rank rank, int64_t tiles) { tiles_[static_cast<size_t>(rank.value)] = tiles; }
  void add_user_input(const UserInput& input) { user_inputs_.push_back(input); }
  // What the op of this call has named its word families, kWordFamilies of them, for reports; null where it has no name
  // for one.
  void name_families(const char* const* names) { std::copy_n(names, kWordFamilies, family_names_); }
  // Where the halves begin, behind the flag area, if not where the arena layout says. Only a broken library differs.
  void move_halves(int64_t half0_bytes, int64_t half1_bytes);

  const std::vector<Agent>& agents(Rank rank) const { return agents_[static_cast<size_t>(rank.value)]; }
  const std::byte* model(const Agent& agent) const { return models_.data() + agent.model_at; }
  int64_t tiles(Rank rank) const { return tiles_[static_cast<size_t>(rank.value)]; }
  const std::vector<UserInput>& user_inputs() const { return user_inputs_; }
  int64_t cursor_bytes(Rank rank) const;
  const char* const* family_names() const { return family_names_; }
  bool has_moved_halves() const { return has_moved_halves_; }
  int64_t moved_half(int half) const { return moved_halves_[half]; }
  // Takes an agent away, as if the op had forgotten it.
  void remove(const std::string& role);

 private:
  void add_agent(Rank rank, Agent agent);

  std::vector<std::vector<Agent>> agents_;  // by rank, by stage
  std::vector<std::byte> models_;
  std::vector<int64_t> tiles_;
  std::vector<UserInput> user_inputs_;
  const char* family_names_[kWordFamilies] = {};
  bool has_moved_halves_ = false;
  int64_t moved_halves_[2] = {0, 0};
};

struct SimProgram {
  TopologyTables topology;
  ArenaLayout arena;
  Epoch first_epoch = 1;
  int32_t rings = 0;  // command rings of each rank; every one of them must end every call
  std::vector<SimCall> calls;

  int32_t ranks() const { return topology.view().ranks; }
  Epoch epoch(int32_t call) const { return first_epoch + static_cast<Epoch>(call); }
  // Appends an empty call and returns it; the reference lasts until the next one.
  SimCall& add_call();
};

// Cursors that an agent needs: waiting, working and publishing are one where they cannot be apart.
constexpr int32_t cursor_count(const AgentPlace& place) { return place.has_cursors ? 3 : 1; }

}  // namespace tilewire

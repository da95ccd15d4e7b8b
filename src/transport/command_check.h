// Whether a command that came out of a ring may be carried out. Commands hold indices, never addresses, so each one can
// be checked; a bad one is a broken role and ends the communicator.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "schedule/arena_layout.h"
#include "schedule/wire.h"

namespace tilewire {

// What is committed of the areas that commands point into, on this rank and on its peers. Grows between calls, on
// another thread than the proxy's.
struct CommittedBytes {
  std::atomic<uint64_t> half{0};
  std::atomic<uint64_t> user{0};
};

enum class CommandField : uint8_t { none, kind, peer, word, units, src, dst, epoch };

const char* to_string(CommandField field);

// By rank: position in the list of peers, -1 for a rank that is none.
std::vector<int32_t> peer_positions(const std::vector<Rank>& peers, int32_t ranks);

class CommandCheck {
 public:
  // `committed` must outlive this.
  CommandCheck(const ArenaLayout& layout, const std::vector<Rank>& peers, uint64_t max_write_bytes,
               const CommittedBytes& committed);

  // The first field that is wrong, or none. `epoch` is the epoch of the command's ring.
  CommandField bad_field(const Command& command, Epoch epoch) const;
  // "units = 9 from half unit 3, limit 8 units": the bad field with its limit, for the error.
  std::string explain(const Command& command, CommandField field, Epoch epoch) const;

 private:
  uint64_t source_bytes(const Command& command) const;

  uint64_t words_;
  uint64_t max_write_bytes_;
  std::vector<int32_t> peer_positions_;
  const CommittedBytes& committed_;
};

}  // namespace tilewire

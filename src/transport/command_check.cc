#include "transport/command_check.h"

#include <fmt/format.h>

namespace tilewire {
namespace {

// [unit, unit + units) inside `bytes`; the fields are narrow enough that nothing overflows.
bool is_inside(uint64_t unit, uint64_t units, uint64_t bytes) { return (unit + units) * kWireUnitBytes <= bytes; }

}  // namespace

const char* to_string(CommandField field) {
  switch (field) {
    case CommandField::none: return "none";
    case CommandField::kind: return "kind";
    case CommandField::peer: return "peer";
    case CommandField::word: return "word";
    case CommandField::units: return "units";
    case CommandField::src: return "src_unit";
    case CommandField::dst: return "dst_unit";
    case CommandField::epoch: return "epoch";
  }
  return "unknown";
}

std::vector<int32_t> peer_positions(const std::vector<Rank>& peers, int32_t ranks) {
  std::vector<int32_t> positions(static_cast<size_t>(ranks), -1);
  for (size_t i = 0; i < peers.size(); ++i) positions.at(static_cast<size_t>(peers[i].value)) = static_cast<int32_t>(i);
  return positions;
}

CommandCheck::CommandCheck(const ArenaLayout& layout, const std::vector<Rank>& peers, uint64_t max_write_bytes,
                           const CommittedBytes& committed)
    : words_(static_cast<uint64_t>(layout.flags.words())),
      max_write_bytes_(max_write_bytes),
      peer_positions_(peer_positions(peers, layout.flags.ranks)),
      committed_(committed) {}

uint64_t CommandCheck::source_bytes(const Command& command) const {
  return (command.from_user ? committed_.user : committed_.half).load(std::memory_order_acquire);
}

CommandField CommandCheck::bad_field(const Command& c, Epoch epoch) const {
  if (c.kind == CommandKind::call_end) return c.epoch == epoch ? CommandField::none : CommandField::epoch;
  if (c.kind != CommandKind::write && c.kind != CommandKind::signal) return CommandField::kind;
  const auto peer = static_cast<size_t>(c.peer.value);
  if (peer >= peer_positions_.size() || peer_positions_[peer] < 0) return CommandField::peer;
  if (c.word >= words_) return CommandField::word;
  if (c.kind == CommandKind::signal) return CommandField::none;
  if (c.units == 0 || uint64_t{c.units} * kWireUnitBytes > max_write_bytes_) return CommandField::units;
  if (!is_inside(c.src_unit, c.units, source_bytes(c))) return CommandField::src;
  if (!is_inside(c.dst_unit, c.units, committed_.half.load(std::memory_order_acquire))) return CommandField::dst;
  return CommandField::none;
}

std::string CommandCheck::explain(const Command& c, CommandField field, Epoch epoch) const {
  switch (field) {
    case CommandField::none: return "nothing is wrong";
    case CommandField::kind: return fmt::format("kind = {}, limit 0..2", static_cast<int>(c.kind));
    case CommandField::peer: return fmt::format("peer = {}, must be one of this rank's peers", c.peer.value);
    case CommandField::word: return fmt::format("word = {}, limit {} words", c.word, words_);
    case CommandField::units: return fmt::format("units = {}, limit 1..{}", c.units, max_write_bytes_ / kWireUnitBytes);
    case CommandField::src:
      return fmt::format("src_unit = {} and units = {}, limit {} units of the {}", c.src_unit, c.units,
                         source_bytes(c) / kWireUnitBytes, c.from_user ? "user area" : "half");
    case CommandField::dst:
      return fmt::format("dst_unit = {} and units = {}, limit {} units of the half", c.dst_unit, c.units,
                         committed_.half.load(std::memory_order_acquire) / kWireUnitBytes);
    case CommandField::epoch: return fmt::format("epoch = {}, must be {}", c.epoch, epoch);
  }
  return "";
}

}  // namespace tilewire

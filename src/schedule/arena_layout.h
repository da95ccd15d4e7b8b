// Where things lie in the arena of a communicator. Four address ranges with strides fixed at creation, the same on
// every rank: the flag area, half 0, half 1 and the user area. No address depends on the shape of a call.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "schedule/wire.h"

namespace tilewire {

struct Options;

// Words for chunks come in families, one for each role of data that an op moves. Ops share them: the epoch in a word
// says which call it belongs to, and a communicator has one call in flight.
//
// Room for the op that will need most, a MoE layer: row counts; dispatched, forwarded and combined chunks; credits of
// each of these three directions for slots of the node and of the rail; what the rank has made itself, for either GEMM.
// A reduction under a window needs six of them.
inline constexpr int32_t kWordFamilies = 12;

// The list of all words of a rank's flag area, in order. Single writer each; they hold epochs and are never reset.
//   begun(p)               p's record of call e lies in my half; written by p (or by my proxy for it)
//   done(p)                p has finished call e; written by p
//   chunk(family, s, c)    chunk c of source s is here; written by whoever delivers it
//   sent()                 all that my proxy was asked to send in call e has landed; written by the proxy. It lies on
//                          the control page, apart from the words that peers write
struct FlagLayout {
  int32_t ranks = 0;
  int32_t max_chunks = 0;  // chunks of one source in one call

  TILEWIRE_HD constexpr uint32_t begun(Rank p) const { return static_cast<uint32_t>(p.value); }
  TILEWIRE_HD constexpr uint32_t done(Rank p) const { return static_cast<uint32_t>(ranks + p.value); }
  TILEWIRE_HD constexpr uint32_t chunk(int32_t family, Rank source, Chunk c) const {
    return static_cast<uint32_t>(2 * int64_t{ranks} + (int64_t{family} * ranks + source.value) * max_chunks + c.value);
  }
  TILEWIRE_HD static constexpr uint32_t sent() { return 0xffffffffu; }
  TILEWIRE_HD constexpr int64_t words() const {
    return 2 * int64_t{ranks} + int64_t{kWordFamilies} * ranks * max_chunks;
  }
  TILEWIRE_HD constexpr bool is_begun(uint32_t word) const { return word < static_cast<uint32_t>(ranks); }
  TILEWIRE_HD constexpr bool is_done(uint32_t word) const {
    return word >= static_cast<uint32_t>(ranks) && word < 2u * static_cast<uint32_t>(ranks);
  }
};

// The first page of the flag area: what the host side of a rank needs beside the words.
struct ControlPage {
  static constexpr int64_t kBytes = 4096;
  static constexpr int64_t kAbort = 0;       // 64-bit: 0 = run, anything else = leave
  static constexpr int64_t kBell = 64;       // 32-bit futex word, bumped by whoever published while someone sleeps
  static constexpr int64_t kSleepers = 128;  // 32-bit: how many of the rank's threads sleep on the bell
  static constexpr int64_t kSent = 192;      // 64-bit: sent(e), published by the rank's proxy
};

// A command names a word in CommandBits::kWord bits (wire.h), so each family takes ranks from the largest cluster.
static_assert(FlagLayout{.ranks = 128, .max_chunks = 1024}.words() <= CommandLimits::kWords,
              "kWordFamilies is so large that 128 ranks no longer have words for 1024 chunks a source: widen "
              "CommandBits::kWord or need fewer families");

struct ArenaLayout {
  FlagLayout flags;
  int64_t half_stride_bytes = 0;
  int64_t user_stride_bytes = 0;

  // The areas behind the flags begin at multiples of this when their strides are multiples: GPU memory is mapped in such
  // pieces, host memory in smaller ones.
  static constexpr int64_t kAreaAlignmentBytes = int64_t{2} << 20;

  TILEWIRE_HD static constexpr int64_t round_page(int64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

  TILEWIRE_HD constexpr int64_t word_offset(uint32_t word) const {
    if (word == FlagLayout::sent()) return ControlPage::kSent;
    return ControlPage::kBytes + int64_t{word} * int64_t{sizeof(uint64_t)};
  }
  TILEWIRE_HD constexpr int64_t flag_bytes() const {
    return round_page(ControlPage::kBytes + flags.words() * int64_t{sizeof(uint64_t)});
  }
  TILEWIRE_HD constexpr int64_t flag_stride_bytes() const {
    return (flag_bytes() + kAreaAlignmentBytes - 1) / kAreaAlignmentBytes * kAreaAlignmentBytes;
  }
  TILEWIRE_HD static constexpr int half_of(Epoch e) { return static_cast<int>(e & 1); }
  TILEWIRE_HD constexpr int64_t half_offset(Epoch e) const {
    return flag_stride_bytes() + half_of(e) * half_stride_bytes;
  }
  TILEWIRE_HD constexpr int64_t user_offset() const { return flag_stride_bytes() + 2 * half_stride_bytes; }
  TILEWIRE_HD constexpr int64_t total_bytes() const { return user_offset() + user_stride_bytes; }

  // Offsets inside a half: the records of all ranks (own one at its own index: it is also what is sent), then op data.
  TILEWIRE_HD static constexpr int64_t record_offset(Rank p) { return int64_t{p.value} * kWireUnitBytes; }
  TILEWIRE_HD constexpr int64_t data_offset() const { return round_page(int64_t{flags.ranks} * kWireUnitBytes); }
};

// The arena of a communicator of so many ranks with these options. Whatever is left to the library there fits as many
// ranks as commands can name. Host only.
ArenaLayout arena_layout(int32_t ranks, const Options& options);

// Throws Error(resource) naming the field when the layout does not fit the wire's fields. Host only.
void check_limits(const ArenaLayout& layout);

}  // namespace tilewire

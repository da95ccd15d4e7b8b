// What the simulator says about a run: the rules that were broken, each with its place, and how much was walked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"

namespace tilewire {

enum class ViolationKind : uint8_t {
  read_too_early,      // a role reads bytes whose data has not landed
  wrong_slot,          // the data a role expects lies elsewhere
  overwritten,         // data was replaced before its last reader was through
  source_overwritten,  // a send source was written before the network had read it
  outside_half,        // an access outside the half of its call and the user area
  tile_twice,
  tile_missing,
  tile_unknown,         // a tile number that the call does not have
  record_unmatched,     // data of a rank used before the call record of its deliverer was looked at
  wait_without_signal,  // a role waits for a word that nobody will publish
  signal_without_wait,  // a word was published and never waited for
  signal_twice,         // a word was published twice in one call
  cycle,                // roles that wait for each other
  held_back,            // a signal is held back by a role that waits for a peer
  done_too_early,       // done(e) before its claims were true
  done_set,             // done(e) not published to, or not awaited of, the whole set
  two_ahead,            // a rank began a call while a member of its done set was two calls behind
  missing_call_end,     // a command ring that does not end its call
  ring_misuse,          // two producers on one ring, or a command behind call_end
  word_in_flight,       // a network word written again before its previous write was known to have landed
  word_went_back,       // a word fell to an older epoch
  not_at_rest,          // something is in flight, or a word is not at its epoch, after the last call
  bad_command,          // a command or store that the target cannot be reached with
};

const char* to_string(ViolationKind kind);

struct Violation {
  ViolationKind kind = ViolationKind::not_at_rest;
  Rank rank{-1};
  std::string role{};  // empty where no role is to blame
  int32_t worker = 0;
  Epoch epoch = 0;
  int64_t word = -1;         // index in the flag area of the rank that waits, or -1
  int64_t begin_bytes = -1;  // range in the arena behind the flag area, or -1
  int64_t end_bytes = -1;
  std::string text{};  // the whole story, for people
};

struct SimReport {
  uint64_t seed = 0;           // of a random run
  int64_t pieces_of_work = 0;  // done, over all roles
  int64_t events = 0;
  int64_t messages = 0;     // posted to the network
  int64_t states = 0;       // of an exhaustive run: different states seen
  bool is_complete = true;  // false: the exhaustive run hit its limit of states
  std::vector<Violation> violations{};

  bool ok() const { return violations.empty(); }
  bool has(ViolationKind kind) const;
  // One line a violation, the seed first.
  std::string text() const;
};

}  // namespace tilewire

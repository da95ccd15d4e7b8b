// How a program is walked: the network, the distance of cursors, and faults planted on purpose.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tilewire {

enum class SimNetwork : uint8_t {
  ordered,  // RC-like: on one path data becomes visible before the flag behind it; the flag is a plain store
  counted,  // SRD-like: any order, any delay; the receiver's proxy and relay publish the word, by maximum
};

// How far apart the wait, work and publish cursors of agents with `has_cursors` may be.
enum class SimDistance : uint8_t {
  plan,     // as the program says
  one,      // one piece of work
  maximum,  // the whole call
};

enum class SimFault : uint8_t {
  drop_signal,   // one signal, or the command that carries it, is never given
  early_signal,  // signals of the role are given before its work is done
  wrong_slot,    // one write or copy lands one length too far
  drop_need,     // the role does not wait for that word
};

// A rule broken on purpose, to see that the simulator names it.
struct PlantedFault {
  SimFault fault = SimFault::drop_signal;
  std::string role;   // which role
  int32_t rank = -1;  // of which rank, -1 = of all
  int64_t word = -1;  // only this word, -1 = all (drop_need), the nth (others)
  int32_t nth = 0;    // of that role in every call: the nth piece of work; -1 = all
};

struct SimOptions {
  SimNetwork network = SimNetwork::counted;
  int32_t nics = 1;  // paths between two ranks; a chunk takes one, by its word
  SimDistance distance = SimDistance::plan;
  bool has_strict_load_ahead = false;  // a piece of work waits until load_ahead more are acquired, as a role that loads
                                       // and works in one thread does
  bool flushes_before_wait = true;     // false is a fault: held-back signals stay while the role waits
  bool publishes_maximum = true;       // false is a fault: a receiver of a counted network stores whatever epoch comes
  bool checks_memory = true;
  int32_t max_violations = 8;
  std::vector<PlantedFault> faults;
};

}  // namespace tilewire

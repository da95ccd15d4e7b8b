// What a role is. A role is an iterator over its work in one call, in pure integer logic, that says for each piece of
// work what it needs and what it publishes. The loop of a role is its protocol and nothing else:
//
//   for (Work w; role.next(w);) { wait for every need(w, i); do the work; publish every publish(w, i); }
//
// The same iterator runs in a CUDA kernel, in the host executor and in the simulator. Loading ahead and signalling
// behind are the business of those three (see Cursors); the iterator does not know.
//
// A role type R has
//   R::Work                              a struct derived from WorkBase
//   bool next(Work&)                     the next piece of work, false at the end
//   Need need(const Work&, i)            the i-th word, in the own flag area, that must have reached an epoch
//   Publish publish(const Work&, i)      the i-th word to publish when the work is done
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace tilewire {

struct WorkBase {
  int32_t needs = 0;
  int32_t publishes = 0;
};

// A word in the own flag area that must have reached the epoch of the call, less `lag`.
struct Need {
  uint32_t word = 0;
  int32_t lag = 0;
};

// A word in the flag area of `to`, which may be the rank itself. Ranks of other nodes are reached through the proxy.
struct Publish {
  Rank to;
  uint32_t word = 0;
};

// How a role keeps what it looks at: by a copy, or in a kernel by a reference to the kernel's parameters, which outlive
// it. (There a copy would lie in local memory.)
#if defined(__CUDA_ARCH__)
template <class T>
using Kept = const T&;
#else
template <class T>
using Kept = T;
#endif

// How far a role may run ahead of its waits and behind with its signals. Part of the plan. Everything held back is
// published before the role waits for a peer.
struct Cursors {
  int32_t load_ahead = 0;      // pieces of work whose needs are awaited before the current one is done
  int32_t publish_behind = 0;  // pieces of work that may be done but not yet published
};

}  // namespace tilewire

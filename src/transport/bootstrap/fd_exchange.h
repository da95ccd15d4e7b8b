// Passing file descriptors (memory) between the ranks of one host over abstract-namespace Unix sockets: nothing is left
// in the file system, whatever happens.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/unique_fd.h"
#include "transport/bootstrap/job.h"
#include "transport/bootstrap/steady_time.h"

namespace tilewire {

struct FdExchange {
  JobKey job;                 // names the sockets and authenticates both sides
  Rank rank{};                // this rank
  std::vector<Rank> ranks{};  // the ranks of this host, this one included; the same list on each of them
  std::string purpose{};      // "arena 0": one exchange a purpose at a time in a job; at most 32 letters
  std::function<void()>
      poll{};  // called at least every 50 ms while waiting; throws to give up (control.throw_if_aborted)
};

// Collective among exchange.ranks. Every rank gets a descriptor of its own for each other rank's `own_fd`: result[i]
// belongs to exchange.ranks[i], this rank's entry is closed. `own_fd` stays the caller's. Connections of other jobs or
// of strangers are dropped.
// Throws Error(deadline) that lists the ranks that did not come, Error(invalid_argument) for a bad list or descriptor,
// Error(resource) when the socket's name is taken or descriptors run out, and what `poll` throws. Leaves nothing open.
std::vector<UniqueFd> exchange_fds(const FdExchange& exchange, int own_fd, SteadyTime deadline);

}  // namespace tilewire

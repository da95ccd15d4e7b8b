// How the emulated transport reaches ranks of the same machine: what one machine that plays several nodes has, and a
// network between hosts has not.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "transport/emulated/arena_writer.h"

namespace tilewire {

// Collective among the ranks of this host: gives `own_fd` to all and returns theirs by rank, none for those that have
// none and for this rank itself. `purpose` tells exchanges apart. Throws as exchange_fds() of the bootstrap does.
using FdExchanger =
    std::function<std::vector<UniqueFd>(std::string_view purpose, int own_fd, std::chrono::nanoseconds deadline)>;

struct LocalReach {
  // The arena of a peer: its base where the ranks are threads of one process, else its memory file, which the transport
  // maps when it is made (the descriptor stays the caller's). By rank; empty when unused.
  std::vector<std::byte*> arena_bases{};
  std::vector<int> arena_fds{};
  FdExchanger exchange_fds{};  // not needed where the ranks are threads of one process
  // Makes what moves data between arenas that the processor cannot reach; empty: it can.
  std::function<std::unique_ptr<ArenaWriter>()> make_writer{};
};

}  // namespace tilewire

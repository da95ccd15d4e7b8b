// What the network of a virtual cluster does when nothing else runs: the chunks of all shards, one command each, through
// rings, proxies, transport and wire, as a call of the gather sends them. Takes the place of calls of the cluster.
#pragma once

#include "transport/command_queue.h"
#include "virtual_cluster.cuh"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <vector>

namespace tilewire {

class BareTransfer {
 public:
  // Each rank has `shard_bytes` for one rank of each other node, in chunks of at most `chunk_bytes`.
  BareTransfer(VirtualCluster& cluster, int64_t shard_bytes, int64_t chunk_bytes)
      : cluster_(cluster), shard_bytes_(shard_bytes), chunk_bytes_(chunk_bytes) {
    for (int32_t r = 0; r < cluster.ranks(); ++r) {
      const DeviceRank rank = cluster.rank(r, 0);
      senders_.push_back({Rank{r},
                          CommandProducer(rank.rings[static_cast<int32_t>(Ring::send)]),
                          CommandProducer(rank.rings[static_cast<int32_t>(Ring::call)]),
                          rank.control_page,
                          {},
                          false});
    }
  }

  // Microseconds for the shards of `calls` calls, the first of which is `first`, with nothing between them.
  double run_us(Epoch first, int64_t calls) {
    for (Sender& sender : senders_) sender.left = commands_of(sender.me, first, calls);
    const Epoch last = first + static_cast<Epoch>(calls) - 1;
    const auto begin = std::chrono::steady_clock::now(), limit = begin + std::chrono::seconds(5);
    for (bool is_over = false; !is_over;) {
      is_over = true;
      for (Sender& sender : senders_) is_over = advance(sender, last) && is_over;
      if (std::chrono::steady_clock::now() > limit) throw std::runtime_error("a bare transfer does not end");
    }
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  struct Sender {
    Rank me;
    CommandProducer send, call;
    std::byte* control_page;
    std::vector<Command> left;    // the last one first
    bool has_ended_call = false;  // the call ring has the end that is next, the other one has not
  };

  std::vector<Command> commands_of(Rank me, Epoch first, int64_t calls) const {
    const Topology t = cluster_.topology();
    std::vector<Command> commands;
    const int64_t at = cluster_.layout().data_offset() + me.value * shard_bytes_;
    for (Epoch epoch = first; epoch < first + static_cast<Epoch>(calls); ++epoch) {
      int32_t chunk = 0;
      for (int64_t done = 0; done < shard_bytes_; done += chunk_bytes_, ++chunk) {
        for (int32_t n = 0; n < t.nodes - 1; ++n) {
          const auto unit = static_cast<uint64_t>((at + done) / kWireUnitBytes);
          commands.push_back(
              {.kind = CommandKind::write,
               .peer = t.rail_partner(me, t.other_node(t.node(me), n)),
               .word = cluster_.layout().flags.chunk(0, me, Chunk{chunk}),
               .units = static_cast<uint32_t>(std::min(chunk_bytes_, shard_bytes_ - done) / kWireUnitBytes),
               .src_unit = unit,
               .dst_unit = unit});
        }
      }
      commands.push_back({.kind = CommandKind::call_end, .epoch = epoch});
    }
    std::reverse(commands.begin(), commands.end());
    return commands;
  }
  // True when all is posted, and sent.
  static bool advance(Sender& sender, Epoch last) {
    while (!sender.left.empty()) {
      const Command& next = sender.left.back();
      if (next.kind == CommandKind::call_end && !sender.has_ended_call) {
        if (!sender.call.try_post(next)) return false;
        sender.has_ended_call = true;
      }
      if (!sender.send.try_post(next)) return false;
      sender.has_ended_call = false;
      sender.left.pop_back();
    }
    auto* sent = reinterpret_cast<uint64_t*>(sender.control_page + ControlPage::kSent);
    return std::atomic_ref(*sent).load(std::memory_order_acquire) >= last;
  }

  VirtualCluster& cluster_;
  int64_t shard_bytes_, chunk_bytes_;
  std::vector<Sender> senders_;
};

}  // namespace tilewire

// How the fake devices of this process behave: from the variable FAKE_VERBS when the library is used first, or from
// fake_verbs_set(). Both take one text, "seed=3,window=8,refuse=create_ah:2:12"; what is not named stays as it is.
#pragma once

#include <cstdint>
#include <string>

namespace tilewire::fake_verbs {

struct Settings {
  uint64_t seed = 1;      // of every shuffle
  uint64_t devices = 2;   // efa0, efa1, ...
  uint64_t roce = 0;      // roce0, roce1, ...
  uint64_t adaptive = 1;  // data of RC requests lands in any order, as over adaptive routing; 0: in theirs
  uint64_t window = 16;   // messages whose packets are under way at once, in any order
  uint64_t held = 8;      // completions that are kept back to come in another order
  uint64_t packet_bytes = 8192;
  uint64_t direct = 0;      // 1: no wire: a post carries its message, in order, before it returns
  uint64_t active = 1;      // 0: ports are down
  uint64_t gids = 1;        // 0: the GID table is empty
  uint64_t efa = 1;         // 0: devices are not EFA
  uint64_t rdma_write = 1;  // capabilities of the device
  uint64_t unsolicited = 1;
  uint64_t solicited = 0;  // devices that cannot do without receives all the same, a bit each
  uint64_t rnr_retry = 1;
  uint64_t max_qp = 256;
  uint64_t max_sq_wr = 4096;
  uint64_t max_rq_wr = 32768;
  uint64_t max_cqe = 65536;
  uint64_t max_cq = 1024;
  uint64_t max_mr = 1024;
  uint64_t max_pd = 1024;
  uint64_t max_ah = 4096;
  uint64_t max_rdma_bytes = 1 << 30;
  uint64_t enomem_every = 0;  // every n-th batch is refused as by a full queue
  uint64_t fail_nth = 0;      // the n-th request with data from now fails
  uint64_t fail_code = 8;     // as the device says it, see codes.h
  uint64_t fatal = 0;      // 1: that failure is one of the queue pair: all of it is flushed, the cause told 20 ms later
  uint64_t mute = 0;       // devices that take and answer nothing, a bit each; those of RoCE from bit 16 on
  uint64_t gone_ms = 200;  // a request to a host that is not there fails after that
  uint64_t silent_ms = 20000;  // the same without an answer from one that is
  std::string refuse_call{};   // the call of that name and number (from 0) fails with an errno
  uint64_t refuse_number = 0;
  int refuse_error = 12;
};

// "" when all of the text was taken, else what is wrong with it; settings before that are changed.
std::string apply_settings(const std::string& text, Settings& settings);

}  // namespace tilewire::fake_verbs

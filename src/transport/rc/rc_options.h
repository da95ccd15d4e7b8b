// What a user may set about the RC transport, checked and in the units of verbs.
#pragma once

#include <tilewire/options.h>

#include <cstdint>
#include <string>

namespace tilewire {

// How the receiver of a chunk learns that it is here.
enum class RcSignal : uint8_t {
  immediate,   // by the receive completion of the write itself: right on every network
  ordered,     // by a word written behind the data: for networks that keep the order of packets
  completion,  // by a word written when the data has been acknowledged
};

const char* to_string(RcSignal signal);

struct RcOptions {
  std::string library = "libibverbs.so.1";
  std::string device{};  // "mlx5_0" or "mlx5_0:1", or several with commas between; "": chosen
  int32_t nics = 0;      // ports of a rank; 0: as many as are near
  int32_t gid_index = -1;
  RcSignal signal = RcSignal::immediate;
  int32_t channels = 1;            // queue pairs to each peer
  uint32_t send_entries = 256;     // of each queue pair
  uint32_t receive_entries = 512;  // immediates that may wait at a receiver, for each queue pair
  uint32_t inline_bytes = 16;      // asked for; values are sent from memory of their own where there is less
  int32_t mtu_bytes = 0;           // 0: the port's
  uint8_t traffic_class = 0;
  uint8_t service_level = 0;
  uint8_t timeout = 17;  // 4.096 us * 2^timeout until a packet is sent again
  uint8_t retries = 6;
  uint8_t rnr_retries = 6;
  bool relaxed_ordering = false;  // of data, never of words
};

// From verbs_library and rc_*.
RcOptions rc_options(const Options& options);

}  // namespace tilewire

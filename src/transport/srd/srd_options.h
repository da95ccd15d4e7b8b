// What a user may set about the SRD transport, checked and in the units of verbs.
#pragma once

#include <tilewire/options.h>

#include <cstdint>
#include <string>

namespace tilewire {

// Whether immediates take entries of a receive queue. Both ends of a path have to do it alike.
enum class SrdUnsolicited : uint8_t {
  where_able,  // not where the device can do without
  on,          // they take none
  off,
};

const char* to_string(SrdUnsolicited unsolicited);

struct SrdOptions {
  std::string verbs_library = "libibverbs.so.1";
  std::string efa_library = "libefa.so.1";
  std::string device{};            // "rdmap0s6", or several with commas between; "": chosen
  int32_t nics = 0;                // ports of a rank; 0: as many as are near
  int32_t channels = 1;            // queue pairs of a rank, each for all its peers
  uint32_t send_entries = 256;     // of each queue pair
  uint32_t receive_entries = 256;  // immediates of one peer that may wait at each queue pair, at most
  SrdUnsolicited unsolicited = SrdUnsolicited::where_able;
};

// From verbs_library, efa_library and srd_*.
SrdOptions srd_options(const Options& options);

}  // namespace tilewire

// Which entry of a port's GID table names this end of a RoCE path. Pure: the table is read elsewhere.
#pragma once

#include <string>
#include <vector>

#include "transport/verbs/abi.h"

namespace tilewire::verbs {

struct GidRow {
  int32_t index = 0;
  abi::Gid gid{};
  abi::GidType type = abi::kGidInfiniband;
  bool is_readable = true;  // false: there is an entry, and asking for it failed
};

struct GidChoice {
  int32_t index = -1;  // -1: none can be used
  abi::Gid gid{};
  std::string text{};     // "GID 1 (::ffff:10.77.0.1, RoCE v2)", or why there is none, with what the table holds
  std::string warning{};  // not empty where the best there is may not reach other subnets
};

// The row `asked`, or for -1 the best: RoCE v2 of an IPv4 address, RoCE v2 of a global IPv6 address, and with a warning
// RoCE v1 or a link-local address. Rows that are empty or cannot be read are never taken.
GidChoice choose_gid(const std::vector<GidRow>& table, int32_t asked);

std::string gid_text(const abi::Gid& gid);

}  // namespace tilewire::verbs

// Which ranks share a host: those whose identities are equal can pass memory to each other by file descriptor.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/ids.h"

namespace tilewire {

struct HostIdentity {
  std::string hostname;           // for people, and against cloned machines that share a boot id
  std::string boot_id;            // /proc/sys/kernel/random/boot_id
  std::string network_namespace;  // abstract Unix sockets are seen only inside one
  std::string override_id;        // set by the caller to split or join hosts; once set on either, it alone decides
  int32_t process_id = 0;         // for texts only, not compared

  bool is_same_host(const HostIdentity& other) const;
  std::string to_text() const;  // "node7 (process 4711)"
};

// Reads the parts from the system; a part that cannot be read stays empty. Never throws.
HostIdentity this_host(const std::string& override_id = {});

// The hosts in the order of their lowest rank, each with its ranks ascending. hosts[i] belongs to rank i.
std::vector<std::vector<Rank>> group_by_host(std::span<const HostIdentity> hosts);

}  // namespace tilewire

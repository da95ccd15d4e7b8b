// What the library and the device say of a request that failed, as one number and as text.
#pragma once

#include <cstdint>
#include <string>

#include "transport/verbs/table.h"

namespace tilewire {

inline int32_t srd_status(verbs::abi::WcStatus status, uint32_t vendor) {
  return static_cast<int32_t>(static_cast<uint32_t>(status) | (vendor & 0x7fffffu) << 8);
}
inline verbs::abi::WcStatus srd_wc_status(int32_t status) {
  return static_cast<verbs::abi::WcStatus>(static_cast<uint32_t>(status) & 0xff);
}
// It says that the queue pair has failed, not why.
inline bool is_flush(int32_t status) { return srd_wc_status(status) == verbs::abi::kWcWrFlushErr; }
inline uint32_t srd_vendor_code(int32_t status) { return static_cast<uint32_t>(status) >> 8; }

// "response timeout error: the peer or the path to it does not answer; EFA code 13"
std::string srd_status_text(const verbs::Verbs& verbs, int32_t status);

}  // namespace tilewire

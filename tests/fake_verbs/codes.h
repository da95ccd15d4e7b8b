// What an EFA device says of a request, and what libibverbs makes of it (EFA_IO_COMP_STATUS_* of efa_io_defs.h).
#pragma once

#include <cstdint>

#include "transport/verbs/abi.h"

namespace tilewire::fake_verbs {

enum class Code : uint8_t {
  ok = 0,
  flushed = 1,
  invalid_lkey = 5,
  bad_address = 7,
  aborted = 8,
  bad_qpn = 9,
  not_ready = 10,
  bad_length = 11,
  unresponsive = 13,
  unknown_peer = 14,
  unreachable = 15,
  feature_mismatch = 16,
};

inline verbs::abi::WcStatus status_of(Code code) {
  using namespace verbs::abi;
  switch (code) {
    case Code::ok: return kWcSuccess;
    case Code::flushed: return kWcWrFlushErr;
    case Code::invalid_lkey: return kWcLocProtErr;
    case Code::bad_address: return kWcRemAccessErr;
    case Code::aborted: return kWcRemAbortErr;
    case Code::bad_qpn: return kWcRemInvRdReqErr;
    case Code::not_ready: return kWcRnrRetryExcErr;
    case Code::unknown_peer: return kWcRemOpErr;
    case Code::unresponsive:
    case Code::unreachable: return kWcRespTimeoutErr;
    case Code::bad_length:
    case Code::feature_mismatch: return kWcRemInvReqErr;
  }
  return kWcGeneralErr;
}

// The same of RC: who does not answer and who is not there are alike.
inline verbs::abi::WcStatus rc_status_of(Code code) {
  const bool is_silence = code == Code::unresponsive || code == Code::unreachable || code == Code::bad_qpn;
  return is_silence ? verbs::abi::kWcRetryExcErr : status_of(code);
}

}  // namespace tilewire::fake_verbs

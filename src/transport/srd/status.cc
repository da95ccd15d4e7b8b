#include "transport/srd/status.h"

#include <fmt/format.h>

namespace tilewire {
namespace {

using namespace verbs;

const char* meaning_of(abi::WcStatus status) {
  switch (status) {
    case abi::kWcRespTimeoutErr: return ": the peer or the path to it does not answer";
    case abi::kWcRemOpErr: return ": the peer does not know this device";
    case abi::kWcRemInvRdReqErr: return ": the peer has no such queue pair any more";
    case abi::kWcRemInvReqErr: return ": the peer takes immediates in another way, see srd_unsolicited";
    case abi::kWcRnrRetryExcErr: return ": the peer takes no more immediates";
    case abi::kWcRemAccessErr: return ": the peer's device refused the key or the address";
    default: return "";
  }
}

}  // namespace

std::string srd_status_text(const Verbs& verbs, int32_t status) {
  const abi::WcStatus wc = srd_wc_status(status);
  const char* name = verbs.status_text(wc);
  return fmt::format("{}{}; EFA code {}", name != nullptr ? name : "unknown status", meaning_of(wc),
                     srd_vendor_code(status));
}

}  // namespace tilewire

#include "transport/srd/srd_options.h"

namespace tilewire {

const char* to_string(SrdUnsolicited unsolicited) {
  switch (unsolicited) {
    case SrdUnsolicited::where_able: return "auto";
    case SrdUnsolicited::on: return "on";
    case SrdUnsolicited::off: return "off";
  }
  return "unknown";
}

SrdOptions srd_options(const Options& options) {
  SrdOptions srd;
  srd.verbs_library = options.verbs_library;
  srd.efa_library = options.efa_library;
  srd.device = options.srd_device;
  srd.nics = static_cast<int32_t>(options.nics);
  srd.channels = static_cast<int32_t>(options.srd_channels);
  srd.send_entries = static_cast<uint32_t>(options.srd_send_entries);
  srd.receive_entries = static_cast<uint32_t>(options.srd_receive_entries);
  for (const SrdUnsolicited value : {SrdUnsolicited::where_able, SrdUnsolicited::on, SrdUnsolicited::off}) {
    if (options.srd_unsolicited == to_string(value)) srd.unsolicited = value;
  }
  return srd;
}

}  // namespace tilewire

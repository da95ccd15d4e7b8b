#include "transport/rc/rc_options.h"

#include <fmt/format.h>
#include <tilewire/error.h>

namespace tilewire {

const char* to_string(RcSignal signal) {
  switch (signal) {
    case RcSignal::immediate: return "immediate";
    case RcSignal::ordered: return "ordered";
    case RcSignal::completion: return "completion";
  }
  return "unknown";
}

RcOptions rc_options(const Options& options) {
  RcOptions rc;
  rc.library = options.verbs_library;
  rc.device = options.rc_device;
  rc.gid_index = static_cast<int32_t>(options.rc_gid_index);
  for (const RcSignal signal : {RcSignal::immediate, RcSignal::ordered, RcSignal::completion}) {
    if (options.rc_signal == to_string(signal)) rc.signal = signal;
  }
  rc.channels = static_cast<int32_t>(options.rc_channels);
  rc.send_entries = static_cast<uint32_t>(options.rc_send_entries);
  rc.receive_entries = static_cast<uint32_t>(options.rc_receive_entries);
  rc.mtu_bytes = options.rc_mtu == "port" ? 0 : std::stoi(options.rc_mtu);
  rc.traffic_class = static_cast<uint8_t>(options.rc_traffic_class);
  rc.service_level = static_cast<uint8_t>(options.rc_service_level);
  rc.timeout = static_cast<uint8_t>(options.rc_timeout);
  rc.retries = static_cast<uint8_t>(options.rc_retries);
  rc.rnr_retries = static_cast<uint8_t>(options.rc_rnr_retries);
  rc.relaxed_ordering = options.rc_relaxed_ordering != 0;
  rc.nics = static_cast<int32_t>(options.nics);
  if (options.device == "cuda" && rc.signal != RcSignal::immediate) {
    throw Error(ErrorKind::invalid_argument,
                {.what = "words in GPU memory are not written by network cards, but by kernels that are told of them",
                 .values = fmt::format("device = cuda, rc_signal = {}", to_string(rc.signal)),
                 .advice = "set rc_signal=immediate"});
  }
  if (rc.signal == RcSignal::completion && rc.nics > 1) {
    throw Error(ErrorKind::invalid_argument,
                {.what = "words written when their data has been acknowledged need the NIC of that data",
                 .values = fmt::format("rc_signal = completion, nics = {}", rc.nics),
                 .advice = "set rc_signal=immediate, or nics=1"});
  }
  if (rc.signal == RcSignal::ordered && (rc.channels > 1 || rc.nics > 1 || rc.relaxed_ordering)) {
    throw Error(ErrorKind::invalid_argument,
                {.what = "words written behind their data need one NIC, one queue pair a peer and strict memory",
                 .values = fmt::format("rc_signal = ordered, nics = {}, rc_channels = {}, rc_relaxed_ordering = {}",
                                       rc.nics, rc.channels, rc.relaxed_ordering ? 1 : 0),
                 .advice = "set rc_signal=immediate, or nics=1, rc_channels=1 and rc_relaxed_ordering=0"});
  }
  return rc;
}

}  // namespace tilewire

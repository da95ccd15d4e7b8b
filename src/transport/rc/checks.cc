#include "transport/rc/checks.h"

#include <fmt/format.h>

#include <utility>

#include "transport/peer_agreement.h"
#include "transport/rc/queue.h"

namespace tilewire {

void check_device_limits(const verbs::Port& port, const RcOptions& options, const TransportContext& context,
                         const std::string& where) {
  const auto channels = static_cast<uint64_t>(options.channels);
  uint64_t queues = 0;
  for (const size_t peers : port.peers_of_users) queues += peers * channels;
  std::vector<verbs::PortNeed> needs = common_needs(port, context.arena_pieces);
  needs.insert(
      needs.end(),
      {{"queue pairs", queues, port.device.max_qp, "lower rc_channels"},
       {"completion queues", port.peers_of_users.size(), port.device.max_cq, "let fewer ranks share it, see nics"},
       {"entries of a send queue", options.send_entries + RcQueue::kOwnEntries, port.device.max_qp_wr,
        "lower rc_send_entries"},
       {"entries of a receive queue", options.receive_entries, port.device.max_qp_wr, "lower rc_receive_entries"},
       {"entries of a completion queue", context.peers.size() * channels * RcQueue::completion_entries(options),
        port.device.max_cqe, "lower rc_channels, rc_send_entries or rc_receive_entries"}});
  check_port_needs(port, needs,
                   fmt::format("{} channels, {} send and {} receive entries", channels, options.send_entries,
                               options.receive_entries),
                   where);
}

void check_agreement(const verbs::Port& port, const RcOptions& options, Rank peer, const RcAddress& address,
                     const std::string& where) {
  const auto check = [&](const char* what, bool is_same, std::string values, const char* advice) {
    check_same(what, is_same, peer, where, std::move(values), advice);
  };
  check("signals", address.signal == options.signal,
        fmt::format("rc_signal = {} here, {} there", to_string(options.signal), to_string(address.signal)),
        "set the same rc_signal on all ranks");
  check("channels", address.channels == options.channels,
        fmt::format("rc_channels = {} here, {} there", options.channels, address.channels),
        "set the same rc_channels on all ranks");
  check("networks", address.link_layer == port.attr.link_layer,
        fmt::format("{} here, {} there: {}", port.text(), address.port,
                    address.link_layer == verbs::abi::kLinkEthernet ? "RoCE" : "InfiniBand"),
        "set rc_device so that all ranks use ports of one network");
}

const char* meaning_of(int32_t status) {
  switch (status) {
    case verbs::abi::kWcRetryExcErr:
      return ": the peer or the path to it does not answer; see rc_timeout and rc_retries";
    case verbs::abi::kWcRnrRetryExcErr: return ": the peer takes no more immediates";
    case verbs::abi::kWcRemAccessErr: return ": the peer's device refused the key or the address";
    case verbs::abi::kWcWrFlushErr: return ": the connection had failed before, or the peer's request was refused here";
    default: return "";
  }
}

}  // namespace tilewire

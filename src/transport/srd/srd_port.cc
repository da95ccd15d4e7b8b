#include "transport/srd/srd_port.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <numeric>

#include "transport/verbs/library.h"

namespace tilewire {
namespace {

using namespace verbs;

constexpr uint32_t kFewestCredits = 16;
// Reports of taken immediates, each of a quarter of the credits or a bit less, that a peer may not have seen yet.
constexpr uint32_t kReportsAtOnce = 6;
constexpr uint32_t kReportSendEntries = 64;

std::string judge(const Efa& efa, Port& port, abi::EfaDeviceAttr& attr) {
  attr = {};
  if (efa.query_device(port.context.get(), &attr, sizeof(attr)) != 0) return "it is no EFA device";
  if ((attr.device_caps & abi::kEfaCapRdmaWrite) == 0) {
    return "it has no RDMA write, or libefa is too old to know (rdma-core 46)";
  }
  // An EFA device has one GID, in the form of a link-local address that routes all the same.
  const bool has_gid = !port.gids.empty() && port.gids[0].is_readable && port.gids[0].gid != abi::Gid{};
  if (!has_gid) return "its GID cannot be read";
  port.gid = {.index = 0, .gid = port.gids[0].gid, .text = fmt::format("GID {}", gid_text(port.gids[0].gid))};
  port.own_facts = {
      {"libefa", library_file(reinterpret_cast<const void*>(efa.query_device))},
      {"efa", fmt::format("capabilities {:#x}, {} send and {} receive entries, {} bytes inline, writes of {}",
                          attr.device_caps, attr.max_sq_wr, attr.max_rq_wr, attr.inline_buf_size, attr.max_rdma_size)}};
  return "";
}

}  // namespace

SrdLibraries load_srd_libraries(const SrdOptions& options) {
  const SrdLibraries libraries{&load_verbs(options.verbs_library), &load_efa(options.efa_library)};
  if (libraries.verbs->qp_to_qp_ex == nullptr) {
    throw Error(ErrorKind::unavailable, {.what = "libibverbs is too old for EFA",
                                         .where = options.verbs_library,
                                         .values = "it has no function ibv_qp_to_qp_ex",
                                         .advice = "install rdma-core 46 or newer"});
  }
  return libraries;
}

verbs::PortWish srd_port_wish(const SrdLibraries& libraries, const SrdOptions& options) {
  return {.device_option = "srd_device",
          .device = options.device,
          .nics = options.nics,
          .judge = [efa = libraries.efa](Port& port) {
            abi::EfaDeviceAttr ignored;
            return judge(*efa, port, ignored);
          }};
}

SrdPort srd_port_of(const SrdLibraries& libraries, verbs::Port port) {
  SrdPort opened{.port = std::move(port)};
  judge(*libraries.efa, opened.port, opened.efa);
  return opened;
}

std::string why_no_srd_port(const SrdOptions& options) {
  try {
    const SrdLibraries libraries = load_srd_libraries(options);
    open_ports(*libraries.verbs, srd_port_wish(libraries, options), {});
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

SrdNeeds srd_needs(const SrdPort& port, const SrdOptions& options, const TransportContext& context,
                   const std::string& where) {
  const bool can_unsolicited = port.has(abi::kEfaCapUnsolicitedWriteRecv);
  if (options.unsolicited == SrdUnsolicited::on && !can_unsolicited) {
    throw Error(ErrorKind::unavailable, {.what = "the EFA device, or libefa, cannot do without receives",
                                         .where = where,
                                         .values = fmt::format("srd_unsolicited = on, device {}", port.port.name),
                                         .advice = "set srd_unsolicited=auto or off on all ranks"});
  }
  SrdNeeds needs;
  needs.is_unsolicited = options.unsolicited != SrdUnsolicited::off && can_unsolicited;
  const auto count = static_cast<uint32_t>(std::max<size_t>(1, context.peers.size()));
  const auto channels = static_cast<uint32_t>(options.channels);
  // As many as fit; the peers are told how many that is.
  const auto most_completions = static_cast<uint32_t>(std::max(0, port.port.device.max_cqe));
  const uint32_t most = needs.is_unsolicited ? most_completions : std::min(port.efa.max_rq_wr, most_completions);
  needs.credits = std::clamp(most / count, kFewestCredits, std::max(options.receive_entries, kFewestCredits));
  needs.queues = channels + 1;
  needs.send_entries = options.send_entries;
  needs.receive_entries = count * needs.credits;
  needs.report_send_entries = kReportSendEntries;
  needs.report_receive_entries = count * channels * kReportsAtOnce;
  const int64_t most_receives = needs.is_unsolicited ? INT64_MAX : int64_t{port.efa.max_rq_wr};
  const std::vector<size_t>& peers_of_users = port.port.peers_of_users;
  const uint64_t queues = peers_of_users.size() * needs.queues;
  std::vector<PortNeed> counts = common_needs(port.port, context.arena_pieces);
  counts.insert(counts.end(),
                {{"queue pairs", queues, port.port.device.max_qp, "lower srd_channels"},
                 {"completion queues", 2 * queues, port.port.device.max_cq, "lower srd_channels"},
                 {"address handles", std::accumulate(peers_of_users.begin(), peers_of_users.end(), uint64_t{0}),
                  port.port.device.max_ah, "let fewer ranks share it, see nics"},
                 {"entries of a send queue", needs.send_entries, port.efa.max_sq_wr, "lower srd_send_entries"},
                 {"entries of a receive queue", std::max(needs.receive_entries, needs.report_receive_entries),
                  most_receives, "lower srd_channels, or let fewer ranks of a node talk to others"},
                 {"entries of a completion queue",
                  std::max({needs.send_entries, needs.receive_entries, needs.report_receive_entries}), most_completions,
                  "lower srd_send_entries or srd_channels"}});
  check_port_needs(port.port, counts,
                   fmt::format("{} channels, {} send entries, {} immediates of each peer", channels, needs.send_entries,
                               needs.credits),
                   where);
  return needs;
}

}  // namespace tilewire

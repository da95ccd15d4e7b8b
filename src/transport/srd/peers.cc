#include "transport/srd/peers.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <cerrno>
#include <utility>

#include "transport/peer_agreement.h"

namespace tilewire {

using namespace verbs;

namespace {

constexpr uint8_t kSrdHopLimit = 255;

void check_agreement(const SrdPeers::Own& own, Rank rank, const SrdAddress& address) {
  const auto check = [&](const char* what, bool is_same, std::string values, const char* advice) {
    check_same(what, is_same, rank, own.where, std::move(values), advice);
  };
  const auto text = [](bool is_unsolicited) { return is_unsolicited ? "without receives" : "with receives"; };
  check("ways to take immediates", address.is_unsolicited == own.is_unsolicited,
        fmt::format("{} here on {}, {} there on {}", text(own.is_unsolicited), own.port->port.name,
                    text(address.is_unsolicited), address.port),
        "their devices or versions of libefa differ: set srd_unsolicited=off on all ranks");
  check("channels", address.queues.size() == own.channels,
        fmt::format("srd_channels = {} here, {} there", own.channels, address.queues.size()),
        "set the same srd_channels on all ranks");
}

}  // namespace

SrdPeers::SrdPeers(size_t ranks, const std::vector<Rank>& peers) : all_(ranks) {
  for (const Rank rank : peers) {
    at(rank).rank = rank;
    at(rank).arena.is_peer = true;
  }
}

SrdPeer* SrdPeers::find(Rank rank) {
  const auto index = static_cast<size_t>(rank.value);
  return index < all_.size() && all_[index].arena.is_peer ? &all_[index] : nullptr;
}

const SrdSource* SrdPeers::find_source(uint64_t source) const {
  const auto found = sources_.find(source);
  return found != sources_.end() ? &found->second : nullptr;
}

const SrdPeers::Known& SrdPeers::handle_of(const Own& own, Rank rank, const SrdAddress& address) {
  Known& known = handles_[address.gid];
  if (known.handle) return known;
  abi::AhAttr attr{};
  attr.is_global = 1;
  attr.port_num = own.port->port.number;
  attr.grh = {.dgid = address.gid,
              .flow_label = 0,
              .sgid_index = static_cast<uint8_t>(own.port->port.gid.index),
              .hop_limit = kSrdHopLimit,
              .traffic_class = 0};
  abi::EfaAhAttr efa{};
  known.handle = Ah(*own.libraries.verbs, own.libraries.verbs->create_ah(own.pd, &attr));
  const int error = known.handle ? own.libraries.efa->query_ah(known.handle.get(), &efa, sizeof(efa)) : errno;
  if (!known.handle || error != 0) {
    throw Error(ErrorKind::resource, {.what = fmt::format("no address handle for rank {} could be made", rank.value),
                                      .where = own.where,
                                      .values = fmt::format("GID {} of {}, from {}: {}", gid_text(address.gid),
                                                            address.port, own.port->port.name, errno_text(error)),
                                      .advice = "both hosts must be in one subnet, and their security group let all "
                                                "traffic through"});
  }
  known.number = efa.ahn;
  return known;
}

void SrdPeers::connect(const Own& own, Rank rank, const SrdAddress& address) {
  check_agreement(own, rank, address);
  const Known& known = handle_of(own, rank, address);
  SrdPeer& peer = at(rank);
  peer.arena.address = address.arena;
  peer.arena.learn(address.keys);
  const auto path_to = [&](uint32_t queue, uint64_t credits) {
    return SrdPath{
        .peer = rank,
        .target = {.ah = known.handle.get(), .queue = queue, .qkey = address.qkey},
        .credits = SendCredits(credits),
        .nothing = {
            .src = own.scratch, .dst = address.scratch, .src_key = own.scratch_key, .dst_key = address.scratch_key}};
  };
  peer.paths.clear();
  for (size_t channel = 0; channel < address.queues.size(); ++channel) {
    const uint32_t queue = address.queues[channel];
    peer.paths.push_back(path_to(queue, address.credits));
    sources_[srd_source(known.number, queue)] = {rank, static_cast<uint32_t>(channel)};
  }
  peer.taken.assign(own.channels, TakenCount(own.credits));
  // Reports are rare enough to need none: see srd_needs().
  peer.report_path = path_to(address.report_queue, UINT64_MAX);
  sources_[srd_source(known.number, address.report_queue)] = {rank, SrdSource::kReports};
}

}  // namespace tilewire

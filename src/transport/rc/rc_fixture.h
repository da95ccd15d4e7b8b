// For tests of the RC transport over a device that carries nothing.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

#include "transport/rc/address.h"
#include "transport/rc/rc_port.h"
#include "transport/rc/rc_transport.h"
#include "transport/verbs/fake_device.h"

namespace tilewire {

inline constexpr verbs::abi::Gid kRcPeerGid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1};

class RcSetup : public ::testing::Test {
 protected:
  static constexpr uint64_t kPage = 4096;

  RcSetup() : arena_(8 * kPage) { device_.ports = {FakeDevice::port("nic0"), FakeDevice::port("nic1")}; }

  static std::unique_ptr<Transport> make_one(const TransportContext& context, const RcOptions& options,
                                             const verbs::Verbs& verbs) {
    return make_rc_port_transport(context, options, verbs, open_port(verbs, rc_port_wish(options), context));
  }
  TransportContext context_of(int32_t peers) {
    TransportContext context{.rank = Rank{0}, .ranks = peers + 1, .arena = arena_.data(), .arena_bytes = arena_.size()};
    for (int32_t r = 1; r <= peers; ++r) context.peers.emplace_back(r);
    context.strict_bytes = kPage;
    return context;
  }
  std::unique_ptr<Transport> make(int32_t peers = 2) {
    table_ = device_.table();
    return make_one(context_of(peers), options_, table_);
  }
  // An address that rank `from` of two would give to this rank.
  RcAddress address_of(Rank from) const {
    RcAddress address{.signal = options_.signal,
                      .channels = options_.channels,
                      .link_layer = device_.ports[0].attr.link_layer,
                      .mtu = verbs::abi::kMtu4096,
                      .lid = FakeDevice::kLid,
                      .gid = kRcPeerGid,
                      .port = "nic9:1",
                      .receive_entries = options_.receive_entries};
    for (int32_t c = 0; c < options_.channels; ++c) address.queues.push_back({Rank{0}, c, 1000u + from.value, 5, 64});
    return address;
  }

  FakeDevice device_;
  RcOptions options_;
  verbs::Verbs table_;
  std::vector<std::byte> arena_;
};

// A transport of two ranks whose peer has registered pages 0 to 5 with one key and the rest with another.
class RcPosts : public RcSetup {
 protected:
  std::unique_ptr<Transport> connected() {
    std::unique_ptr<Transport> transport = make(1);
    transport->register_arena(0, 3 * kPage);
    transport->register_arena(3 * kPage, 5 * kPage);
    RcAddress peer = address_of(Rank{1});
    peer.arena = kPeerArena;
    peer.keys = {{0, 6 * kPage, 71}, {6 * kPage, 8 * kPage, 72}};
    const std::vector<Bytes> addresses{{}, peer.pack()};
    transport->connect(addresses, std::chrono::milliseconds(1));
    return transport;
  }
  uint64_t own(uint64_t offset) const { return reinterpret_cast<uint64_t>(arena_.data()) + offset; }

  static constexpr uint64_t kPeerArena = 0x7000000000;
};

}  // namespace tilewire

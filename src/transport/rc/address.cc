#include "transport/rc/address.h"

#include "transport/peer_agreement.h"

namespace tilewire {
namespace {

constexpr uint64_t kRcAddressMagic = 0x5457524331303031;  // changes with what follows it

}  // namespace

Bytes RcAddress::pack() const {
  ByteWriter writer;
  writer.u64(kRcAddressMagic)
      .u8(static_cast<uint8_t>(signal))
      .i32(channels)
      .u8(link_layer)
      .u8(static_cast<uint8_t>(mtu));
  writer.u16(lid).raw(std::as_bytes(std::span(gid))).text(port).u64(arena);
  verbs::write_keys(writer, keys);
  writer.u32(scratch_key).u32(receive_entries).u64(queues.size());
  for (const RcQueueEnd& queue : queues) {
    writer.i32(queue.peer.value).i32(queue.channel).u32(queue.number).u32(queue.first_psn).u64(queue.scratch);
  }
  return writer.take();
}

RcAddress RcAddress::unpack(Rank from, std::span<const std::byte> bytes) {
  ByteReader reader(bytes, "RC address");
  if (bytes.size() < sizeof(kRcAddressMagic) || reader.u64() != kRcAddressMagic) {
    refuse_address(from, bytes.size(), "rc transport");
  }
  RcAddress address;
  address.signal = static_cast<RcSignal>(reader.u8());
  address.channels = reader.i32();
  address.link_layer = static_cast<verbs::abi::LinkLayer>(reader.u8());
  address.mtu = static_cast<verbs::abi::Mtu>(reader.u8());
  address.lid = reader.u16();
  const auto gid = reader.array<sizeof(verbs::abi::Gid)>();
  for (size_t i = 0; i < gid.size(); ++i) address.gid[i] = static_cast<uint8_t>(gid[i]);
  address.port = reader.text();
  address.arena = reader.u64();
  address.keys = verbs::read_keys(reader);
  address.scratch_key = reader.u32();
  address.receive_entries = reader.u32();
  for (uint64_t left = reader.u64(); left > 0; --left) {
    RcQueueEnd& queue = address.queues.emplace_back();
    queue.peer = Rank{reader.i32()};
    queue.channel = reader.i32();
    queue.number = reader.u32();
    queue.first_psn = reader.u32();
    queue.scratch = reader.u64();
  }
  reader.finish();
  return address;
}

}  // namespace tilewire

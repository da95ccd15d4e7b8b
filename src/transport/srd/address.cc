#include "transport/srd/address.h"

#include "transport/peer_agreement.h"

namespace tilewire {
namespace {

constexpr uint64_t kSrdAddressMagic = 0x5457534431303031;  // changes with what follows it

}  // namespace

Bytes SrdAddress::pack() const {
  ByteWriter writer;
  writer.u64(kSrdAddressMagic).u8(is_unsolicited ? 1 : 0);
  writer.raw(std::as_bytes(std::span(gid))).text(port).u32(qkey).u64(arena);
  verbs::write_keys(writer, keys);
  writer.u64(scratch).u32(scratch_key).u32(credits).u32(report_queue).u64(queues.size());
  for (const uint32_t queue : queues) writer.u32(queue);
  return writer.take();
}

SrdAddress SrdAddress::unpack(Rank from, std::span<const std::byte> bytes) {
  ByteReader reader(bytes, "SRD address");
  if (bytes.size() < sizeof(kSrdAddressMagic) || reader.u64() != kSrdAddressMagic) {
    refuse_address(from, bytes.size(), "srd transport");
  }
  SrdAddress address;
  address.is_unsolicited = reader.u8() != 0;
  const auto gid = reader.array<sizeof(verbs::abi::Gid)>();
  for (size_t i = 0; i < gid.size(); ++i) address.gid[i] = static_cast<uint8_t>(gid[i]);
  address.port = reader.text();
  address.qkey = reader.u32();
  address.arena = reader.u64();
  address.keys = verbs::read_keys(reader);
  address.scratch = reader.u64();
  address.scratch_key = reader.u32();
  address.credits = reader.u32();
  address.report_queue = reader.u32();
  for (uint64_t left = reader.u64(); left > 0; --left) address.queues.push_back(reader.u32());
  reader.finish();
  return address;
}

}  // namespace tilewire

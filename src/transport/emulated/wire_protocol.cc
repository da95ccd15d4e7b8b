#include "transport/emulated/wire_protocol.h"

#include <algorithm>

#include "transport/bootstrap/fd_packet.h"

namespace tilewire {
namespace {

constexpr uint32_t kMagic = 0x31575754;  // TWW1
constexpr size_t kMaxFailureBytes = kMaxPacketBytes - 64;
constexpr auto kLastErrorKind = ErrorKind::internal;

ByteWriter writer_of(WirePacket kind) { return ByteWriter().u8(static_cast<uint8_t>(kind)); }

ByteReader reader_of(std::span<const std::byte> packet, WirePacket kind, const char* name) {
  if (kind_of(packet) != kind) {
    throw Error(ErrorKind::mismatch, {.what = "a packet came out of turn",
                                      .where = name,
                                      .values = "kind " + std::to_string(static_cast<int>(kind_of(packet)))});
  }
  return {packet.subspan(1), name};
}

void check_magic(uint32_t magic, const char* name) {
  if (magic == kMagic) return;
  throw Error(ErrorKind::mismatch, {.what = "the other side speaks another protocol", .where = name});
}

}  // namespace

WirePacket kind_of(std::span<const std::byte> packet) {
  if (packet.empty()) throw Error(ErrorKind::mismatch, {.what = "a packet is empty", .where = "wire"});
  return static_cast<WirePacket>(packet[0]);
}

Bytes pack(WirePacket kind) { return writer_of(kind).take(); }

Digest WireKeys::proof(std::string_view label, std::span<const std::byte> content) const {
  const Digest key = hmac_sha256(to_bytes(secret), to_bytes("tilewire wire"));
  return hmac_sha256(key, ByteWriter().text(label).raw(from_rank).raw(from_wire).bytes(content).take());
}

Bytes WireHello::pack() const { return writer_of(WirePacket::hello).u32(kMagic).text(version).raw(challenge).take(); }

WireHello WireHello::unpack(std::span<const std::byte> packet) {
  ByteReader reader = reader_of(packet, WirePacket::hello, "wire hello");
  check_magic(reader.u32(), "wire hello");
  WireHello hello;
  hello.version = reader.text();
  hello.challenge = reader.array<32>();
  return hello;
}

Bytes WireAnswer::pack() const {
  return writer_of(WirePacket::challenge).u32(kMagic).text(version).raw(challenge).raw(proof).take();
}

WireAnswer WireAnswer::unpack(std::span<const std::byte> packet) {
  ByteReader reader = reader_of(packet, WirePacket::challenge, "wire challenge");
  check_magic(reader.u32(), "wire challenge");
  WireAnswer answer;
  answer.version = reader.text();
  answer.challenge = reader.array<32>();
  answer.proof = reader.array<32>();
  return answer;
}

Bytes WireJoin::content() const {
  return ByteWriter()
      .raw(job)
      .i32(rank.value)
      .i32(ranks)
      .u64(static_cast<uint64_t>(arena_bytes))
      .u32(ring_entries)
      .take();
}

Bytes WireJoin::pack() const { return writer_of(WirePacket::join).raw(content()).raw(proof).take(); }

WireJoin WireJoin::unpack(std::span<const std::byte> packet) {
  ByteReader reader = reader_of(packet, WirePacket::join, "wire join");
  WireJoin join;
  join.job = reader.array<16>();
  join.rank = Rank{reader.i32()};
  join.ranks = reader.i32();
  join.arena_bytes = static_cast<int64_t>(reader.u64());
  join.ring_entries = reader.u32();
  join.proof = reader.array<32>();
  reader.finish();
  return join;
}

Bytes WirePlace::pack() const { return writer_of(WirePacket::joined).raw(gpu).i32(ctas).take(); }

WirePlace WirePlace::unpack(std::span<const std::byte> packet) {
  ByteReader reader = reader_of(packet, WirePacket::joined, "place of the wire");
  WirePlace place;
  place.gpu = reader.array<16>();
  place.ctas = reader.i32();
  reader.finish();
  return place;
}

Bytes WirePiece::pack() const {
  return writer_of(WirePacket::piece)
      .u64(static_cast<uint64_t>(range.begin_bytes))
      .u64(static_cast<uint64_t>(range.bytes))
      .u8(is_last ? 1 : 0)
      .take();
}

WirePiece WirePiece::unpack(std::span<const std::byte> packet) {
  ByteReader reader = reader_of(packet, WirePacket::piece, "piece of an arena");
  WirePiece piece;
  piece.range.begin_bytes = static_cast<int64_t>(reader.u64());
  piece.range.bytes = static_cast<int64_t>(reader.u64());
  piece.is_last = reader.u8() != 0;
  reader.finish();
  return piece;
}

Bytes WireStart::pack() const { return writer_of(WirePacket::start).i32(participant).i32(expected).take(); }

WireStart WireStart::unpack(std::span<const std::byte> packet) {
  ByteReader reader = reader_of(packet, WirePacket::start, "start of the wire");
  WireStart start;
  start.participant = reader.i32();
  start.expected = reader.i32();
  reader.finish();
  return start;
}

Bytes WireFailure::pack() const {
  return writer_of(WirePacket::failed)
      .u8(static_cast<uint8_t>(kind))
      .text(std::string_view(text).substr(0, kMaxFailureBytes))
      .take();
}

WireFailure WireFailure::unpack(std::span<const std::byte> packet) {
  ByteReader reader = reader_of(packet, WirePacket::failed, "failure of the wire");
  WireFailure failure;
  failure.kind = static_cast<ErrorKind>(std::min<uint8_t>(reader.u8(), static_cast<uint8_t>(kLastErrorKind)));
  failure.text = reader.text();
  reader.finish();
  return failure;
}

}  // namespace tilewire

#include "transport/bootstrap/handshake.h"

#include <algorithm>

namespace tilewire {
namespace {

void write_host(ByteWriter& out, const HostIdentity& host) {
  out.text(host.hostname).text(host.boot_id).text(host.network_namespace).text(host.override_id).i32(host.process_id);
}

HostIdentity read_host(ByteReader& in) {
  HostIdentity host;
  host.hostname = in.text();
  host.boot_id = in.text();
  host.network_namespace = in.text();
  host.override_id = in.text();
  host.process_id = in.i32();
  return host;
}

}  // namespace

Bytes Hello::pack() const { return ByteWriter().u32(protocol_version).i32(rank.value).raw(challenge).take(); }

Hello Hello::unpack(std::span<const std::byte> in) {
  ByteReader reader(in, "hello");
  Hello hello;
  hello.protocol_version = reader.u32();
  hello.rank = Rank(reader.i32());
  if (hello.protocol_version != kProtocolVersion) return hello;
  hello.challenge = reader.array<32>();
  reader.finish();
  return hello;
}

Bytes RootChallenge::pack() const {
  return ByteWriter().u32(protocol_version).raw(nonce).raw(challenge).raw(proof).take();
}

RootChallenge RootChallenge::unpack(std::span<const std::byte> in) {
  ByteReader reader(in, "challenge");
  RootChallenge out;
  out.protocol_version = reader.u32();
  if (out.protocol_version != kProtocolVersion) return out;
  out.nonce = reader.array<16>();
  out.challenge = reader.array<32>();
  out.proof = reader.array<32>();
  reader.finish();
  return out;
}

Bytes Join::pack() const {
  ByteWriter out;
  out.i32(rank.value).i32(world_size).u8(expected_nonce.has_value()).raw(expected_nonce.value_or(Nonce{}));
  out.text(library_version).text(agreed_options);
  write_host(out, host);
  return out.take();
}

Join Join::unpack(std::span<const std::byte> in) {
  ByteReader reader(in, "join");
  Join join;
  join.rank = Rank(reader.i32());
  join.world_size = reader.i32();
  const bool has_nonce = reader.u8() != 0;
  const Nonce nonce = reader.array<16>();
  if (has_nonce) join.expected_nonce = nonce;
  join.library_version = reader.text();
  join.agreed_options = reader.text();
  join.host = read_host(reader);
  reader.finish();
  return join;
}

Bytes RosterVerdict::pack() const {
  ByteWriter out;
  out.u8(is_accepted).u8(static_cast<uint8_t>(kind));
  out.text(parts.what).text(parts.where).text(parts.values).text(parts.limit).text(parts.advice);
  out.u32(static_cast<uint32_t>(hosts.size()));
  for (const HostIdentity& host : hosts) write_host(out, host);
  return out.take();
}

RosterVerdict RosterVerdict::unpack(std::span<const std::byte> in) {
  ByteReader reader(in, "verdict");
  RosterVerdict out;
  out.is_accepted = reader.u8() != 0;
  out.kind = static_cast<ErrorKind>(std::min<uint8_t>(reader.u8(), static_cast<uint8_t>(ErrorKind::internal)));
  out.parts = {reader.text(), reader.text(), reader.text(), reader.text(), reader.text()};
  const uint32_t count = reader.u32();
  for (uint32_t i = 0; i < count; ++i) out.hosts.push_back(read_host(reader));
  reader.finish();
  return out;
}

Digest HandshakeKeys::proof(std::string_view label, std::span<const std::byte> content) const {
  return hmac_sha256(key, ByteWriter().text(label).raw(from_rank).raw(from_root).bytes(content).take());
}

Digest HandshakeKeys::root_proof() const { return proof("rank 0 knows the secret", {}); }

Digest HandshakeKeys::join_proof(std::span<const std::byte> join) const { return proof("join", join); }

Digest HandshakeKeys::refusal_proof(std::span<const std::byte> refusal) const { return proof("refusal", refusal); }

Digest HandshakeKeys::verdict_proof(std::span<const std::byte> verdict) const { return proof("verdict", verdict); }

Bytes Sealed::pack() const { return ByteWriter().bytes(content).raw(proof).take(); }

Sealed Sealed::unpack(std::span<const std::byte> in) {
  ByteReader reader(in, "sealed");
  Sealed out;
  out.content = reader.bytes();
  out.proof = reader.array<32>();
  reader.finish();
  return out;
}

}  // namespace tilewire

// The messages of the rendezvous and the proofs in them.
//
//   rank -> rank 0   hello      protocol version, rank, a random challenge
//   rank 0 -> rank   challenge  protocol version, job nonce, a random challenge, rank 0's proof
//   rank -> rank 0   join       everything that is compared, the rank's proof over it;
//                               or `denial`: rank 0's proof is wrong;
//                               or `refusal`: why this rank will not come, with its proof
//   rank 0 -> rank   waiting    which ranks are missing, once a second
//   rank -> rank 0   give_up    the rank's own deadline has passed
//   rank 0 -> rank   verdict    the roster, or the error that all ranks get; with a proof
//
// A proof is an HMAC under the job key over a label of its own, both challenges and the content, so none can be
// replayed or reflected. The first fields of hello and challenge never change, so that any two versions can name their
// difference.
#pragma once

#include <tilewire/error.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "transport/bootstrap/byte_codec.h"
#include "transport/bootstrap/host_identity.h"
#include "transport/bootstrap/job.h"

namespace tilewire {

inline constexpr uint32_t kProtocolVersion = 1;
inline constexpr size_t kMaxHandshakeBytes = size_t{64} << 10;  // of a message from somebody not authenticated yet
inline constexpr size_t kMaxVerdictBytes = size_t{16} << 20;    // of a message from rank 0

enum class HandshakeType : uint16_t { hello = 1, challenge, join, denial, waiting, give_up, verdict, refusal };
// As a message carries it.
constexpr uint16_t type_of(HandshakeType type) { return static_cast<uint16_t>(type); }

using Challenge = std::array<std::byte, 32>;

struct Hello {
  uint32_t protocol_version = kProtocolVersion;
  Rank rank{};
  Challenge challenge{};  // left empty when the versions differ

  Bytes pack() const;
  static Hello unpack(std::span<const std::byte> in);
};

struct RootChallenge {
  uint32_t protocol_version = kProtocolVersion;
  Nonce nonce{};  // this and the rest left empty when the versions differ
  Challenge challenge{};
  Digest proof{};

  Bytes pack() const;
  static RootChallenge unpack(std::span<const std::byte> in);
};

struct Join {
  Rank rank{};
  int32_t world_size = 0;
  std::optional<Nonce> expected_nonce{};
  std::string library_version{};
  std::string agreed_options{};
  HostIdentity host;

  Bytes pack() const;
  static Join unpack(std::span<const std::byte> in);
};

struct RosterVerdict {
  bool is_accepted = false;
  std::vector<HostIdentity> hosts{};     // by rank, when accepted
  ErrorKind kind = ErrorKind::mismatch;  // otherwise
  ErrorParts parts{};

  Bytes pack() const;
  static RosterVerdict unpack(std::span<const std::byte> in);
};

// What both sides of one connection know once the challenges are exchanged.
struct HandshakeKeys {
  Digest key{};
  Challenge from_rank{};
  Challenge from_root{};

  Digest root_proof() const;
  Digest join_proof(std::span<const std::byte> join) const;
  Digest refusal_proof(std::span<const std::byte> refusal) const;
  Digest verdict_proof(std::span<const std::byte> verdict) const;

 private:
  Digest proof(std::string_view label, std::span<const std::byte> content) const;
};

// content + its proof in one payload, and back. Splitting checks sizes only; the caller compares the proof.
struct Sealed {
  Bytes content;
  Digest proof{};

  Bytes pack() const;
  static Sealed unpack(std::span<const std::byte> in);
};

}  // namespace tilewire

// Bringing the N ranks of a job together over TCP.
//
// Two ways: the "host:port" of rank 0, or a KeyValueStore in which rank 0 publishes an ephemeral port, the job nonce
// and (when none is given) a secret it makes. Both sides prove that they hold the secret (challenge and response,
// nothing secret is sent on the connection) before anything else that they say is believed.
//
// Every rank gets the same verdict: protocol, library version, world size, agreed options and ranks are compared on
// rank 0, and a difference is an Error(mismatch) on all ranks that have come, naming who differs with both values.
// Ranks that do not come within the deadline are an Error(deadline) that lists them. Connections that send junk, or
// nothing, are dropped and counted; they do not disturb.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "transport/bootstrap/address.h"
#include "transport/bootstrap/agreement.h"
#include "transport/bootstrap/host_identity.h"
#include "transport/bootstrap/job.h"
#include "transport/bootstrap/key_value_store.h"
#include "transport/bootstrap/message.h"

namespace tilewire {

struct RendezvousOptions {
  Rank rank{};
  int32_t world_size = 1;

  std::string host_port{};                // of rank 0; used when there is no store
  KeyValueStore* store = nullptr;         // not owned; used during the call only
  std::string store_prefix = "tilewire";  // one a communicator, so that two of one job do not meet

  std::string secret{};  // shared by the job; "" with host_port means that nobody is authenticated (logged)
  std::optional<Nonce> expected_nonce{};  // when a launcher made the nonce itself

  std::string library_version{};  // must be equal on all ranks
  std::string agreed_options{};   // "name=value" lines that must be equal on all ranks (Options::agreement_text())

  AddressRequest address;  // which address of rank 0 to publish in the store; its interface also where to listen and
                           // where to connect from
  std::string host_id{};   // override of the host identity (HostIdentity::override_id)

  std::chrono::milliseconds connect_deadline{60'000};
  std::chrono::milliseconds silence = kSilence;  // then the log names who has not come
  std::chrono::milliseconds settle{5'000};       // after a difference: how long late ranks may still come to hear of it
  std::function<void()> poll{};  // called a few times a second while waiting; what it throws ends the rendezvous
};

// What a rank holds after the rendezvous; ControlConnection takes it over.
struct Rendezvous {
  Rank rank;
  int32_t world_size = 1;
  JobKey job;
  std::vector<HostIdentity> hosts;      // by rank
  std::vector<MessageSocket> to_ranks;  // on rank 0: by rank, entry 0 closed
  MessageSocket to_root;                // on the others
  std::string address_reason;           // on rank 0 with a store: why this address was published
  int64_t strangers = 0;                // on rank 0: connections dropped
};

// In place of rendezvous() on a rank other than 0 that will not come, because of what it has found wrong by itself: the
// ranks that came get Error(refused) with `why`. Tries until connect_deadline to reach rank 0, and throws as rendezvous()
// does when it cannot.
void refuse_rendezvous(const RendezvousOptions& options, const std::string& why);

// Blocks until all ranks have come. Throws, beyond what is said above: Error(resource) when the port is in use (naming
// it), Error(invalid_argument) for a bad rank, world size or address, Error(unavailable) when nobody knows the name in
// host_port, nor a few seconds later, and at once on rank 0 when it means another host, Error(peer_lost) when a rank that had come went
// away again. Blocks at most connect_deadline and one second. Leaves nothing open when it throws.
Rendezvous rendezvous(const RendezvousOptions& options);

}  // namespace tilewire

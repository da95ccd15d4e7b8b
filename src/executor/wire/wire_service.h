// The wire process: takes the ranks of one communicator after the other, and moves data between their memories as long as
// some of them are there (transport/emulated/wire_protocol.h, wire_net.h).
//
// A rank leaves by closing its connection, or by dying; what it shared stays mapped until the last one has left. Ranks of
// another communicator wait until then. Nobody is believed before he has shown that he holds the job's secret.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "executor/wire/wire_net.h"
#include "transport/bootstrap/fd_packet.h"
#include "transport/bootstrap/steady_time.h"

namespace tilewire {

struct WireServiceConfig {
  std::string socket;  // its path; must be free, and goes with the service
  std::string secret;
  std::string version;  // of the library
  WireTools tools;
};

class WireService {
 public:
  // Listens. Throws Error(invalid_argument, resource) for a path that cannot be had.
  explicit WireService(WireServiceConfig config);
  ~WireService();
  WireService(const WireService&) = delete;
  WireService& operator=(const WireService&) = delete;

  // Serves until one of the descriptors `stops` can be read or is closed by the other side. Throws Error when the GPU
  // fails, which no later communicator could use either; all ranks have been told.
  void serve(std::span<const int> stops);

 private:
  struct Guest {
    UniqueFd socket;
    SteadyTime since{};
    enum class State { fresh, challenged, waiting, member } state = State::fresh;
    WireKeys keys;
    WireJoin join;
    UniqueFd ring;

    bool is_in_net() const { return state == State::member && socket.is_open(); }
  };

  void accept_guests();
  bool serve(Guest& guest);
  bool handle(Guest& guest, FdPacket& packet);
  bool greet(Guest& guest, const FdPacket& packet);
  bool take_join(Guest& guest, FdPacket& packet);
  void admit(Guest& guest);
  void handle_member(Guest& guest, FdPacket& packet);
  void drop_who_left();
  void end_net_without_ranks();
  void admit_waiting();
  void check_engine();
  [[noreturn]] void tell_all(const Error& error);

  WireServiceConfig config_;
  UniqueFd listener_;
  std::unique_ptr<WireNet> net_;
  std::vector<Guest> guests_;
};

}  // namespace tilewire

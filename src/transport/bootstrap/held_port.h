// Tests only: a port of this host that nobody else gets before rank 0 listens there, which it may while this is held.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>

#include "base/unique_fd.h"

namespace tilewire {

class HeldPort {
 public:
  HeldPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 || bind(fd_.get(), any, length) != 0 ||
        getsockname(fd_.get(), any, &length) != 0) {
      throw std::system_error(errno, std::generic_category(), "no port");
    }
    number_ = ntohs(address.sin_port);
  }
  int number() const { return number_; }
  // From here on rank 0 cannot: somebody else is there, who never answers.
  void listen() const {
    if (::listen(fd_.get(), 8) != 0) throw std::system_error(errno, std::generic_category(), "no listening");
  }

 private:
  UniqueFd fd_;
  int number_ = 0;
};

}  // namespace tilewire

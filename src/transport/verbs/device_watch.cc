#include "transport/verbs/device_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <tilewire/error.h>

#include "base/log.h"

namespace tilewire::verbs {

DeviceWatch::DeviceWatch(const Verbs& verbs, const Port& port) : verbs_(verbs), port_(port) {
  if (verbs.get_async_event == nullptr || verbs.ack_async_event == nullptr || !port.context) return;
  // Else a look would wait for something to be said.
  const int flags = fcntl(port.context->async_fd, F_GETFL);
  is_on_ = flags >= 0 && fcntl(port.context->async_fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

void DeviceWatch::look(std::chrono::nanoseconds patience, const std::string& where) {
  if (!is_on_) return;
  abi::AsyncEvent event{};
  while (verbs_.get_async_event(port_.context.get(), &event) == 0) {
    verbs_.ack_async_event(&event);  // before anything is thrown: destroying what it is about waits for that
    take(event, where);
  }
  if (!down_since_ || std::chrono::steady_clock::now() - *down_since_ < patience) return;
  // A port that came back may have said so while the device had lost count.
  const std::string state = port_.state_now(verbs_);
  if (state == "active") return down_since_.reset();
  fail("a port of the RDMA device has gone down", fmt::format("port {} is {}", port_.name, state), where);
}

void DeviceWatch::take(const abi::AsyncEvent& event, const std::string& where) {
  const bool is_its = event.element.port == port_.number;  // of what is said of ports
  switch (event.type) {
    case abi::kEventDeviceFatal: fail("the RDMA device has failed", fmt::format("port {}", port_.name), where);
    case abi::kEventCqError:
      fail("a completion queue of the RDMA device has failed", fmt::format("port {}", port_.name), where);
    case abi::kEventPortError:
      if (!is_its) return;
      if (!down_since_) down_since_ = std::chrono::steady_clock::now();
      return log_warn("{}: port {} has gone down", where, port_.name);
    case abi::kEventPortActive:
      if (is_its) down_since_.reset();
      return;
    default: return;
  }
}

void DeviceWatch::fail(const char* what, std::string values, const std::string& where) const {
  throw Error(ErrorKind::unavailable, {.what = what,
                                       .where = where,
                                       .values = std::move(values),
                                       .advice = "look at the device, its cable and the kernel's log (dmesg)"});
}

}  // namespace tilewire::verbs

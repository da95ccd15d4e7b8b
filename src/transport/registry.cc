#include "transport/registry.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "transport/emulated/emulated_transport.h"
#include "transport/fault/fault_transport.h"
#include "transport/rc/rc_port.h"
#include "transport/rc/rc_transport.h"
#include "transport/srd/srd_transport.h"

namespace tilewire {
namespace {

// Options that contradict each other are a reason too: with "auto" another transport may do.
std::string why_no_rc(const Options& options) {
  try {
    return why_no_rc_port(rc_options(options));
  } catch (const Error& error) {
    return error.what();
  }
}

std::string why_no_srd(const Options& options) { return why_no_srd_port(srd_options(options)); }

constexpr std::array kKinds = {
    TransportKind{
        .name = "emulated",
        .purpose = "one machine as several nodes: copies within host memory, with bandwidth, latency and order "
                   "of a network",
        .why_unavailable = [](const Options&) { return std::string(); },
        .make = [](const TransportContext& context,
                   const Options& options) { return make_emulated_transport(context, emulated_options(options)); }},
    TransportKind{.name = "rc",
                  .purpose = "InfiniBand and RoCE: reliable connections of libibverbs",
                  .joins_hosts = true,
                  .why_unavailable = why_no_rc,
                  .make =
                      [](const TransportContext& context, const Options& options) {
                        const RcOptions rc = rc_options(options);
                        return make_rc_transport(context, rc, verbs::load_verbs(rc.library));
                      }},
    TransportKind{.name = "srd",
                  .purpose = "AWS EFA: scalable reliable datagrams of libefa",
                  .joins_hosts = true,
                  .why_unavailable = why_no_srd,
                  .make =
                      [](const TransportContext& context, const Options& options) {
                        const SrdOptions srd = srd_options(options);
                        return make_srd_transport(context, srd, load_srd_libraries(srd));
                      }},
};

std::string list_kinds(const Options& options) {
  std::string text;
  for (const TransportKind& kind : kKinds) {
    const std::string reason = kind.why_unavailable(options);
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", kind.name, reason.empty() ? "" : " (" + reason + ")");
  }
  return text;
}

[[noreturn]] void refuse(const Options& options, std::string what) {
  throw Error(ErrorKind::unavailable, {.what = std::move(what),
                                       .values = fmt::format("transport = {}", options.transport),
                                       .limit = "there are: " + list_kinds(options),
                                       .advice = "set transport to one of them, or to auto"});
}

}  // namespace

std::span<const TransportKind> transport_kinds() { return kKinds; }

const TransportKind& choose_transport(const Options& options) {
  for (const TransportKind& kind : kKinds) {
    const std::string reason = kind.why_unavailable(options);
    if (options.transport == "auto") {
      if (reason.empty()) return kind;
    } else if (options.transport == kind.name) {
      if (reason.empty()) return kind;
      refuse(options, fmt::format("the transport cannot be used here: {}", reason));
    }
  }
  refuse(options, options.transport == "auto" ? "no transport can be used here" : "there is no such transport");
}

void check_transport_name(const Options& options) {
  if (options.transport == "auto") return;
  for (const TransportKind& kind : kKinds) {
    if (options.transport == kind.name) return;
  }
  refuse(options, "there is no such transport");
}

bool asks_for_network_cards(const Options& options) {
  return std::any_of(std::begin(kKinds), std::end(kKinds),
                     [&](const TransportKind& kind) { return kind.joins_hosts && options.transport == kind.name; });
}

std::unique_ptr<Transport> make_transport(const TransportKind& kind, const Options& options,
                                          const TransportContext& context) {
  std::unique_ptr<Transport> transport = kind.make(context, options);
  if (options.fault.empty()) return transport;
  return make_fault_transport(std::move(transport), options.fault);
}

std::unique_ptr<Transport> make_transport(const Options& options, const TransportContext& context) {
  return make_transport(choose_transport(options), options, context);
}

}  // namespace tilewire

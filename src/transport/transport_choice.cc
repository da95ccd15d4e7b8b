#include "transport/transport_choice.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include "base/check.h"

namespace tilewire {
namespace {

bool is_wanted(const Options& options, const TransportKind& kind) {
  return options.transport == "auto" || options.transport == kind.name;
}

std::string obstacle(const TransportKind& kind, const Options& options, const TransportPlace& place) {
  if (!is_wanted(options, kind)) return "another one is asked for";
  if (place.hosts > 1 && !kind.joins_hosts) {
    return fmt::format("it joins ranks of one host, and these are on {}", place.hosts);
  }
  if (place.has_gpu_ranks && !kind.joins_hosts && !place.has_wire) {
    return "between GPU ranks it needs a wire process: `tilewire run --virtual`, where they share a GPU";
  }
  if (place.has_gpu_ranks && kind.joins_hosts && !place.gpu_obstacle.empty()) return place.gpu_obstacle;
  return kind.why_unavailable(options);
}

// "rc: not for 2 of 4 ranks; rank 1: the port is down"
std::string verdict(const TransportKind& kind, size_t number, const std::vector<std::vector<std::string>>& by_rank) {
  size_t refusing = 0, first = 0;
  for (size_t r = by_rank.size(); r-- > 0;) {
    if (by_rank[r][number].empty()) continue;
    ++refusing;
    first = r;
  }
  if (refusing == 0) return "";
  return fmt::format("{}: not for {} of {} ranks; rank {}: {}", kind.name, refusing, by_rank.size(), first,
                     by_rank[first][number]);
}

}  // namespace

std::vector<std::string> transport_obstacles(const Options& options, const TransportPlace& place) {
  std::vector<std::string> obstacles;
  for (const TransportKind& kind : transport_kinds()) obstacles.push_back(obstacle(kind, options, place));
  return obstacles;
}

Bytes TransportView::pack() const {
  ByteWriter writer;
  for (const std::string& text : obstacles) writer.text(text);
  writer.text(place.gpu).i32(place.numa);
  return writer.take();
}

TransportView TransportView::unpack(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, "transports");
  TransportView view{.obstacles = std::vector<std::string>(transport_kinds().size())};
  for (std::string& text : view.obstacles) text = reader.text();
  view.place.gpu = reader.text();
  view.place.numa = reader.i32();
  reader.finish();
  return view;
}

const TransportKind& agree_on_transport(const Options& options, const std::vector<std::vector<std::string>>& by_rank) {
  check_transport_name(options);
  std::string verdicts;
  for (size_t i = 0; i < transport_kinds().size(); ++i) {
    const TransportKind& kind = transport_kinds()[i];
    if (!is_wanted(options, kind)) continue;
    const std::string against = verdict(kind, i, by_rank);
    if (against.empty()) return kind;
    verdicts += (verdicts.empty() ? "" : "; ") + against;
  }
  throw Error(
      ErrorKind::unavailable,
      {.what = options.transport == "auto" ? "there is no transport that all ranks can use"
                                           : "the transport cannot be used by all ranks",
       .values = fmt::format("transport = {}", options.transport),
       .limit = verdicts,
       .advice = "mend what is said there, or choose another transport; tilewire doctor shows those of a host"});
}

}  // namespace tilewire

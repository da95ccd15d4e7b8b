#include "transport/verbs/gid_choice.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>

namespace tilewire::verbs {
namespace {

using abi::Gid;

bool is_empty(const Gid& gid) {
  return std::all_of(gid.begin(), gid.end(), [](uint8_t byte) { return byte == 0; });
}

// Also the form that an interface without addresses has: fe80::/64 with a zero identifier.
bool is_link_local(const Gid& gid) { return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80; }

bool is_ipv4(const Gid& gid) {
  return std::all_of(gid.begin(), gid.begin() + 10, [](uint8_t byte) { return byte == 0; }) && gid[10] == 0xff &&
         gid[11] == 0xff;
}

const char* type_text(abi::GidType type) {
  switch (type) {
    case abi::kGidInfiniband: return "InfiniBand";
    case abi::kGidRoceV1: return "RoCE v1";
    case abi::kGidRoceV2: return "RoCE v2";
  }
  return "unknown type";
}

// Smaller is better; above kFree there is something to be said about it.
constexpr int kFree = 1;
constexpr int kNever = 100;

int badness(const GidRow& row) {
  if (!row.is_readable || is_empty(row.gid)) return kNever;
  const bool is_v2 = row.type == abi::kGidRoceV2;
  if (is_v2 && is_ipv4(row.gid)) return 0;
  if (is_v2 && !is_link_local(row.gid)) return kFree;
  if (is_ipv4(row.gid)) return 2;
  return is_v2 ? 3 : 4;
}

std::string row_text(const GidRow& row) {
  if (!row.is_readable) return fmt::format("GID {} (unreadable)", row.index);
  if (is_empty(row.gid)) return fmt::format("GID {} (empty)", row.index);
  return fmt::format("GID {} ({}, {})", row.index, gid_text(row.gid), type_text(row.type));
}

std::string table_text(const std::vector<GidRow>& table) {
  std::string text;
  for (const GidRow& row : table) {
    if (row.is_readable && is_empty(row.gid)) continue;
    text += (text.empty() ? "" : ", ") + row_text(row);
  }
  return text.empty() ? "the GID table is empty" : text;
}

}  // namespace

std::string gid_text(const Gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, gid.data(), text, sizeof(text));
  return text;
}

GidChoice choose_gid(const std::vector<GidRow>& table, int32_t asked) {
  const GidRow* best = nullptr;
  for (const GidRow& row : table) {
    if (badness(row) == kNever || (asked >= 0 && row.index != asked)) continue;
    if (best == nullptr || badness(row) < badness(*best)) best = &row;
  }
  if (best == nullptr) {
    const std::string what = asked >= 0 ? fmt::format("GID {} cannot be used", asked) : "no GID can be used";
    return {.text = fmt::format("{}; there is: {}", what, table_text(table))};
  }
  GidChoice choice{.index = best->index, .gid = best->gid, .text = row_text(*best)};
  if (badness(*best) > kFree) {
    choice.warning =
        fmt::format("{} reaches hosts of the same link alone; give the interface an IPv4 address", row_text(*best));
  }
  return choice;
}

}  // namespace tilewire::verbs

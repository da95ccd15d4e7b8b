#include "transport/bootstrap/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>

namespace tilewire {
namespace {

// "library version is '0.1' on ranks 0, 1 and '0.2' on rank 3, must be equal on all ranks"; "" when all have one value.
std::string compare(std::string_view name, std::span<const Join> joins,
                    const std::function<std::string(const Join&)>& value_of) {
  std::vector<std::pair<std::string, std::vector<Rank>>> groups;
  for (const Join& join : joins) {
    const std::string value = value_of(join);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == value; });
    if (group == groups.end()) group = groups.insert(groups.end(), {value, {}});
    group->second.push_back(join.rank);
  }
  if (groups.size() < 2) return {};
  std::string text = fmt::format("{} is ", name);
  for (size_t i = 0; i < groups.size(); ++i) {
    text += fmt::format("{}'{}' on {}", i == 0 ? "" : " and ", groups[i].first, rank_list(groups[i].second));
  }
  return text + ", must be equal on all ranks";
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

std::string compare_options(std::span<const Join> joins) {
  std::vector<std::vector<std::string>> lines;
  size_t longest = 0;
  for (const Join& join : joins) {
    lines.push_back(split_lines(join.agreed_options));
    longest = std::max(longest, lines.back().size());
  }
  for (size_t i = 0; i < longest; ++i) {
    std::string text = compare("option", joins, [&](const Join& join) {
      const auto& own = lines[static_cast<size_t>(&join - joins.data())];
      return i < own.size() ? own[i] : std::string("(none)");
    });
    if (!text.empty()) return text;
  }
  return {};
}

void compare_rank_numbers(std::span<const Join> joins, std::vector<std::string>& out) {
  std::map<int32_t, const Join*> first;
  for (const Join& join : joins) {
    const auto [at, is_new] = first.emplace(join.rank.value, &join);
    if (is_new) continue;
    out.push_back(fmt::format("rank {} came twice: from {} and from {}, must be one process", join.rank.value,
                              at->second->host.to_text(), join.host.to_text()));
  }
}

}  // namespace

std::string rank_list(std::span<const Rank> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i].value);
  return text;
}

std::vector<Rank> missing_ranks(std::span<const Join> joins, int32_t world_size) {
  std::vector<bool> is_here(static_cast<size_t>(world_size));
  for (const Join& join : joins) {
    if (join.rank.value >= 0 && join.rank.value < world_size) is_here[static_cast<size_t>(join.rank.value)] = true;
  }
  std::vector<Rank> missing;
  for (int32_t rank = 0; rank < world_size; ++rank) {
    if (!is_here[static_cast<size_t>(rank)]) missing.emplace_back(rank);
  }
  return missing;
}

std::vector<std::string> find_differences(std::span<const Join> joins, const Nonce& nonce) {
  std::vector<std::string> out;
  const auto add = [&out](std::string text) {
    if (!text.empty()) out.push_back(std::move(text));
  };
  const std::string world = compare("world size", joins, [](const Join& j) { return fmt::to_string(j.world_size); });
  add(world);
  compare_rank_numbers(joins, out);
  for (const Join& join : joins) {
    if (world.empty() && (join.rank.value < 0 || join.rank.value >= join.world_size)) {
      add(fmt::format("rank {} is not in 0..{}", join.rank.value, join.world_size - 1));
    }
  }
  add(compare("job nonce", joins, [&](const Join& j) { return to_hex(j.expected_nonce.value_or(nonce)); }));
  add(compare("library version", joins, [](const Join& j) { return j.library_version; }));
  add(compare_options(joins));
  return out;
}

}  // namespace tilewire

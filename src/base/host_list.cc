#include "base/host_list.h"

#include "base/number_text.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>

namespace tilewire {
namespace {

constexpr size_t kMostEntries = 65536;

[[noreturn]] void refuse(std::string_view list) {
  throw Error(ErrorKind::invalid_argument,
              {.what = fmt::format("'{}' is no list that Slurm writes", list),
               .where = "launch environment",
               .values = "",
               .limit = fmt::format("at most {} entries, as in gpu[01-03,7] or 2(x3),1", kMostEntries),
               .advice = ""});
}

// Splits at commas outside brackets; false when the brackets do not match.
bool split_entries(std::string_view list, std::vector<std::string_view>& entries) {
  size_t begin = 0;
  bool inside = false;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] == '[' || list[i] == ']') {
      if (inside == (list[i] == '[')) return false;
      inside = !inside;
    } else if (list[i] == ',' && !inside) {
      entries.push_back(list.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  entries.push_back(list.substr(begin));
  return !inside;
}

// "01-03" -> 01, 02, 03, each with the width of the first number.
bool append_range(std::string_view range, std::vector<std::string>& numbers) {
  const size_t dash = std::min(range.find('-'), range.size());
  const std::string_view first = range.substr(0, dash);
  const std::string_view last = dash == range.size() ? first : range.substr(dash + 1);
  const auto low = parse_integer(first);
  const auto high = parse_integer(last);
  if (!low || !high || *low < 0 || *high < *low || *high - *low >= static_cast<int64_t>(kMostEntries)) return false;
  for (int64_t n = *low; n <= *high; ++n) numbers.push_back(fmt::format("{:0{}}", n, first.size()));
  return true;
}

// All of one entry: text with any number of bracketed lists in it.
bool expand_entry(std::string_view entry, std::vector<std::string>& hosts) {
  std::vector<std::string> made{""};
  while (!entry.empty()) {
    const size_t open = std::min(entry.find('['), entry.size());
    for (std::string& host : made) host += entry.substr(0, open);
    if (open == entry.size()) break;
    const size_t close = entry.find(']');
    std::vector<std::string_view> ranges;
    std::vector<std::string> numbers;
    split_entries(entry.substr(open + 1, close - open - 1), ranges);
    for (const std::string_view range : ranges) {
      if (!append_range(range, numbers) || numbers.size() * made.size() > kMostEntries) return false;
    }
    std::vector<std::string> longer;
    for (const std::string& host : made) {
      for (const std::string& number : numbers) longer.push_back(host + number);
    }
    made = std::move(longer);
    entry.remove_prefix(close + 1);
  }
  hosts.insert(hosts.end(), made.begin(), made.end());
  return hosts.size() <= kMostEntries && !made.front().empty();
}

}  // namespace

std::vector<std::string> expand_host_list(std::string_view list) {
  std::vector<std::string_view> entries;
  std::vector<std::string> hosts;
  if (!split_entries(list, entries)) refuse(list);
  for (const std::string_view entry : entries) {
    if (!expand_entry(entry, hosts)) refuse(list);
  }
  return hosts;
}

std::vector<int32_t> expand_tasks_per_node(std::string_view text) {
  std::vector<std::string_view> entries;
  std::vector<int32_t> counts;
  split_entries(text, entries);
  for (const std::string_view entry : entries) {
    const size_t open = std::min(entry.find("(x"), entry.size());
    const bool repeated = open != entry.size();
    if (repeated && !entry.ends_with(')')) refuse(text);
    const auto count = parse_integer(entry.substr(0, open));
    const auto times = repeated ? parse_integer(entry.substr(open + 2, entry.size() - open - 3)) : 1;
    if (!count || !times || *count < 1 || *count > (1 << 20) || *times < 1 ||
        *times > static_cast<int64_t>(kMostEntries - counts.size())) {
      refuse(text);
    }
    counts.insert(counts.end(), static_cast<size_t>(*times), static_cast<int32_t>(*count));
  }
  return counts;
}

}  // namespace tilewire

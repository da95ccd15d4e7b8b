#include "fake_verbs/settings.h"

#include <charconv>
#include <string_view>
#include <utility>

namespace tilewire::fake_verbs {
namespace {

constexpr std::pair<const char*, uint64_t Settings::*> kNumbers[] = {
    {"seed", &Settings::seed},
    {"devices", &Settings::devices},
    {"roce", &Settings::roce},
    {"adaptive", &Settings::adaptive},
    {"window", &Settings::window},
    {"held", &Settings::held},
    {"packet_bytes", &Settings::packet_bytes},
    {"direct", &Settings::direct},
    {"active", &Settings::active},
    {"gids", &Settings::gids},
    {"efa", &Settings::efa},
    {"rdma_write", &Settings::rdma_write},
    {"unsolicited", &Settings::unsolicited},
    {"solicited", &Settings::solicited},
    {"rnr_retry", &Settings::rnr_retry},
    {"max_qp", &Settings::max_qp},
    {"max_sq_wr", &Settings::max_sq_wr},
    {"max_rq_wr", &Settings::max_rq_wr},
    {"max_cqe", &Settings::max_cqe},
    {"max_cq", &Settings::max_cq},
    {"max_mr", &Settings::max_mr},
    {"max_pd", &Settings::max_pd},
    {"max_ah", &Settings::max_ah},
    {"max_rdma_bytes", &Settings::max_rdma_bytes},
    {"enomem_every", &Settings::enomem_every},
    {"fail_nth", &Settings::fail_nth},
    {"fail_code", &Settings::fail_code},
    {"fatal", &Settings::fatal},
    {"mute", &Settings::mute},
    {"gone_ms", &Settings::gone_ms},
    {"silent_ms", &Settings::silent_ms},
};

template <class Number>
bool read_number(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

// "create_ah:2:12"; ":12" may be left out.
bool read_refusal(std::string_view text, Settings& settings) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return false;
  settings.refuse_call = text.substr(0, colon);
  text.remove_prefix(colon + 1);
  const size_t second = text.find(':');
  if (second == std::string_view::npos) return read_number(text, settings.refuse_number);
  return read_number(text.substr(0, second), settings.refuse_number) &&
         read_number(text.substr(second + 1), settings.refuse_error);
}

bool apply_one(std::string_view part, Settings& settings) {
  const size_t equals = part.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view name = part.substr(0, equals);
  const std::string_view value = part.substr(equals + 1);
  if (name == "refuse") return read_refusal(value, settings);
  for (const auto& [known, member] : kNumbers) {
    if (name == known) return read_number(value, settings.*member);
  }
  return false;
}

}  // namespace

std::string apply_settings(const std::string& text, Settings& settings) {
  std::string_view left = text;
  while (!left.empty()) {
    const size_t comma = left.find(',');
    const std::string_view part = left.substr(0, comma);
    if (!apply_one(part, settings)) return "fake_verbs: cannot take \"" + std::string(part) + "\"";
    left = comma == std::string_view::npos ? std::string_view() : left.substr(comma + 1);
  }
  return "";
}

}  // namespace tilewire::fake_verbs

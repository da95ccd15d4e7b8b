#include "base/call_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/hash.h"

namespace tilewire {

std::string text_of(const CallParts& parts) {
  std::string text;
  for (const CallPart& part : parts) text += (text.empty() ? "" : ", ") + part.text;
  return text;
}

CallParts joined(CallParts first, const CallParts& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

std::string CallText::text() const {
  const std::string said = text_of(parts);
  return op.empty() ? said : fmt::format("{} of {}", op, said);
}

uint64_t CallText::hash() const { return hash64(text()); }

void CallText::clip(size_t most_bytes) {
  const auto cut = [&](std::string& text) {
    text.resize(std::min(text.size(), most_bytes));
    most_bytes -= text.size();
  };
  cut(op);
  for (CallPart& part : parts) cut(part.text);
  cut(advice);
  for (CallPart& part : parts) cut(part.advice);
}

CallText plain_text(std::string text) { return {.op = {}, .parts = {{.text = std::move(text)}}}; }

CallText unknown_call_text(uint64_t hash) { return plain_text(fmt::format("a call of hash {:016x}", hash)); }

}  // namespace tilewire

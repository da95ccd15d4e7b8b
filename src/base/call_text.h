// What a rank says of a call, in fields: what has to be equal on all ranks, part by part, each with what to do where it
// is not. Whoever finds a difference compares the fields; nothing is read back out of a text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tilewire {

// One thing that has to be equal.
struct CallPart {
  std::string text{};    // "K = 48"
  std::string advice{};  // what to do where it differs; may be empty
  friend bool operator==(const CallPart&, const CallPart&) = default;
};
using CallParts = std::vector<CallPart>;

// "128 rows, K = 48"
std::string text_of(const CallParts& parts);
// Of one after the other.
CallParts joined(CallParts first, const CallParts& second);

struct CallText {
  std::string op{};      // the name of the call; empty where a rank says something else than what it calls
  CallParts parts{};     // the first one is what the rank brings
  std::string advice{};  // what to do about ranks that bring different things, or are in different steps

  // "all_gather_matmul of 128 rows, K = 48"
  std::string text() const;
  // Of the text: equal where all parts are.
  uint64_t hash() const;
  // Cuts texts from the end, so that all of them together have at most so many bytes.
  void clip(size_t most_bytes);
  friend bool operator==(const CallText&, const CallText&) = default;
};
// It may be kept by many calls at once.
using CallTextRef = std::shared_ptr<const CallText>;

// Of a rank that does not say what it calls.
CallText plain_text(std::string text);
// Of a call of which nothing else is known any more.
CallText unknown_call_text(uint64_t hash);

}  // namespace tilewire

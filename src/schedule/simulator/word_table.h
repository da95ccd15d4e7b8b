// The flag words of all ranks. An arena has many more than a call uses (a word for each chunk that there could be, of
// each source, at each rank), so they come into being in small pages when they are first used: memory follows what is
// used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tilewire {

// All zeros at rest.
struct WordState {
  int32_t first_waiter = 0;  // agent + 1 of those that wait for the word, linked; 0: none
  uint16_t reached = 0;      // call + 1 of the epoch that it holds; 0: the one before the first call
  uint16_t posted = 0;       // call + 1 of the last signal given, landed or not
  uint16_t acquired = 0;     // call + 1 of the last signal that a role has seen
  uint8_t in_flight = 0;     // network writes not yet visible
};

// Words are numbered over all ranks. Copyable. Not thread-safe.
class WordTable {
 public:
  explicit WordTable(int64_t words) : pages_(static_cast<size_t>((words + kPageWords - 1) / kPageWords)) {}

  // For changes. The reference lasts until another word is used for the first time.
  WordState& at(int64_t word) {
    uint32_t& page = pages_[static_cast<size_t>(word / kPageWords)];
    if (page == 0) {
      states_.resize(states_.size() + kPageWords);
      page = static_cast<uint32_t>(states_.size() / kPageWords);
    }
    return states_[place(page, word)];
  }
  const WordState& seen(int64_t word) const {
    static constexpr WordState kAtRest{};
    const uint32_t page = pages_[static_cast<size_t>(word / kPageWords)];
    return page == 0 ? kAtRest : states_[place(page, word)];
  }
  // visit(word, state) in the order of their numbers; words at rest may be left out.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (size_t p = 0; p < pages_.size(); ++p) {
      const int64_t first = static_cast<int64_t>(p) * kPageWords;
      for (int64_t w = first; pages_[p] != 0 && w < first + kPageWords; ++w) visit(w, states_[place(pages_[p], w)]);
    }
  }
  int64_t words_held() const { return static_cast<int64_t>(states_.size()); }

 private:
  static constexpr int64_t kPageWords = 64;
  static size_t place(uint32_t page, int64_t word) {
    return static_cast<size_t>((int64_t{page} - 1) * kPageWords + word % kPageWords);
  }

  std::vector<uint32_t> pages_;    // number of the page + 1; 0: all of its words are at rest
  std::vector<WordState> states_;  // page by page
};

}  // namespace tilewire

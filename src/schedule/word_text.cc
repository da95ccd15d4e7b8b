#include "schedule/word_text.h"

#include <fmt/format.h>

namespace tilewire {

std::string word_text(const FlagLayout& flags, uint32_t word, const char* const* family_names) {
  if (word == FlagLayout::sent()) return "sent of the own proxy";
  if (flags.is_begun(word)) return fmt::format("begun of rank {} (word {})", word, word);
  if (flags.is_done(word)) return fmt::format("done of rank {} (word {})", word - flags.ranks, word);
  if (int64_t{word} >= flags.words()) return fmt::format("word {}, which does not exist", word);
  const int64_t index = int64_t{word} - 2 * int64_t{flags.ranks};
  const int64_t slot = index / flags.max_chunks, family = slot / flags.ranks;
  const char* name = family_names == nullptr ? nullptr : family_names[family];
  return fmt::format("{} of chunk {} of rank {} (word {})", name == nullptr ? fmt::format("family {}", family) : name,
                     index % flags.max_chunks, slot % flags.ranks, word);
}

}  // namespace tilewire

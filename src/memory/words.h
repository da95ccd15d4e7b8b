// THE publish and THE consume routine of the host side: every word that one rank or thread tells another goes through
// these. `base` is any mapped arena (own or a peer's); all words are single-writer unless said otherwise.
//
//   publish: everything the thread wrote before is visible to whoever loads the word and finds it there
//   consume: load_word(...) >= epoch, then everything written before the publish may be read
//
// Thread-safety: all may be called by any thread of any process that maps the arena. None blocks or throws.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "memory/bell.h"
#include "schedule/arena_layout.h"

namespace tilewire {

namespace word_detail {

// C++20 has no atomic_ref of a const object; what takes a const base only loads.
inline std::atomic_ref<uint64_t> word_ref(const std::byte* base, int64_t offset) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(const_cast<std::byte*>(base) + offset));
}

// Raises the word to `value`; false when it was that high already.
inline bool raise(std::atomic_ref<uint64_t> word, uint64_t value) {
  uint64_t seen = word.load(std::memory_order_relaxed);
  while (seen < value) {
    if (word.compare_exchange_weak(seen, value, std::memory_order_seq_cst, std::memory_order_relaxed)) return true;
  }
  return false;
}

}  // namespace word_detail

// An acquire load (seq_cst, as bell.h asks for).
inline uint64_t load_word(const std::byte* base, const ArenaLayout& layout, uint32_t word) {
  return word_detail::word_ref(base, layout.word_offset(word)).load(std::memory_order_seq_cst);
}

inline bool has_reached(const std::byte* base, const ArenaLayout& layout, uint32_t word, Epoch epoch) {
  return load_word(base, layout, word) >= epoch;
}

// A release store (seq_cst, as bell.h asks for), then wakes the rank whose arena it is.
inline void publish_word(std::byte* base, const ArenaLayout& layout, uint32_t word, Epoch epoch) {
  word_detail::word_ref(base, layout.word_offset(word)).store(epoch, std::memory_order_seq_cst);
  wake_sleepers(arena_bell(base));
}

// For a receiver that puts down words which may come out of order: an older epoch never lowers the word. May have
// several writers.
inline void publish_max(std::byte* base, const ArenaLayout& layout, uint32_t word, Epoch epoch) {
  if (word_detail::raise(word_detail::word_ref(base, layout.word_offset(word)), epoch)) {
    wake_sleepers(arena_bell(base));
  }
}

// For an agent that wrote words without ringing (a NIC) and learns of it afterwards.
inline void wake_rank(std::byte* base) { wake_sleepers(arena_bell(base)); }

// sent(e) of a rank: written by its proxy alone.
inline void publish_sent(std::byte* base, Epoch epoch) {
  word_detail::word_ref(base, ControlPage::kSent).store(epoch, std::memory_order_seq_cst);
  wake_sleepers(arena_bell(base));
}
inline Epoch load_sent(const std::byte* base) {
  return word_detail::word_ref(base, ControlPage::kSent).load(std::memory_order_seq_cst);
}

// Tells the rank to leave. The first reason stays; 0 is none. Any number of writers.
inline void raise_abort(std::byte* base, uint64_t reason = 1) {
  uint64_t none = 0;
  word_detail::word_ref(base, ControlPage::kAbort).compare_exchange_strong(none, reason, std::memory_order_seq_cst);
  wake_sleepers(arena_bell(base));
}
// 0, or the reason of the first raise_abort.
inline uint64_t abort_reason(const std::byte* base) {
  return word_detail::word_ref(base, ControlPage::kAbort).load(std::memory_order_seq_cst);
}
inline bool is_aborted(const std::byte* base) { return abort_reason(base) != 0; }

}  // namespace tilewire

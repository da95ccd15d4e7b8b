#include "memory/arena.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <array>

#include "base/bytes.h"
#include "base/check.h"

namespace tilewire {
namespace {

constexpr int64_t kMaxUserAlignmentBytes = 4096;

void check_stride(const char* name, int64_t bytes, int64_t least_bytes, int64_t page_bytes) {
  TILEWIRE_CHECK_GE(bytes, least_bytes, ErrorKind::invalid_argument, "stride of the {} area in an arena layout", name);
  TILEWIRE_CHECK_EQ(bytes % page_bytes, 0, ErrorKind::invalid_argument,
                    "stride of the {} area is {}, pages of this memory are {} bytes", name, bytes, page_bytes);
}

void check_area(const std::string& where, const char* name, int64_t asked, int64_t stride, const char* option) {
  TILEWIRE_CHECK_GE(asked, 0, ErrorKind::invalid_argument, "bytes of the {} area", name);
  if (asked <= stride) return;
  throw Error(ErrorKind::resource, {.what = fmt::format("the {} area of the arena cannot grow that far", name),
                                    .where = where,
                                    .values = fmt::format("{} bytes asked", asked),
                                    .limit = fmt::format("{} bytes are reserved by {}", stride, option),
                                    .advice = fmt::format("raise {} on all ranks, or use smaller calls", option)});
}

}  // namespace

Arena::Arena(const ArenaConfig& config, int64_t page_bytes)
    : rank_(config.rank),
      layout_(config.layout),
      page_bytes_(page_bytes),
      peers_(static_cast<size_t>(std::max(config.layout.flags.ranks, 0))) {
  TILEWIRE_CHECK_GE(rank_.value, 0, ErrorKind::invalid_argument, "rank of an arena");
  TILEWIRE_CHECK_LT(rank_.value, layout_.flags.ranks, ErrorKind::invalid_argument, "rank of an arena");
  check_limits(layout_);
  TILEWIRE_CHECK(page_bytes_ > 0 && ArenaLayout::kAreaAlignmentBytes % page_bytes_ == 0, ErrorKind::unavailable,
                 "memory in pages of {} bytes does not fit areas that begin at multiples of {}", page_bytes_,
                 ArenaLayout::kAreaAlignmentBytes);
  check_stride("half", layout_.half_stride_bytes, layout_.data_offset(), page_bytes_);
  check_stride("user", layout_.user_stride_bytes, 0, page_bytes_);
}

std::string Arena::where() const { return fmt::format("rank {}, arena", rank_); }

std::byte* Arena::peer(Rank p) const {
  TILEWIRE_CHECK(p.value >= 0 && p.value < layout_.flags.ranks, ErrorKind::invalid_argument, "no rank {} among {}", p,
                 layout_.flags.ranks);
  return p == rank_ ? base_ : peers_[static_cast<size_t>(p.value)];
}

void Arena::set_peer(Rank p, std::byte* base) { peers_[static_cast<size_t>(p.value)] = base; }

void Arena::drop_export(ArenaRange range) noexcept {
  std::erase_if(exports_, [range](const ArenaExport& e) { return e.range == range; });
}

void Arena::start(std::byte* base, const ArenaConfig& config, std::byte* control) {
  base_ = base;
  control_ = control != nullptr ? control : base;
  const ArenaRange flags{0, round_up(layout_.flag_bytes(), page_bytes_)};
  ranges_.push_back(flags);
  commit(flags);
  // The records of all ranks lie in the halves even when no call needs more.
  grow(std::max(config.half_bytes, layout_.data_offset()), config.user_bytes);
}

void Arena::check_growth(int64_t half_bytes, int64_t user_bytes) const {
  if (is_closed()) throw Error(ErrorKind::closed, {.what = "the arena is closed", .where = where()});
  check_area(where(), "half", half_bytes, layout_.half_stride_bytes, "TILEWIRE_ARENA_RESERVE_BYTES");
  check_area(where(), "user", user_bytes, layout_.user_stride_bytes, "TILEWIRE_USER_ARENA_RESERVE_BYTES");
}

void Arena::grow(int64_t half_bytes, int64_t user_bytes) {
  check_growth(half_bytes, user_bytes);
  const int64_t new_half = std::max(half_bytes_, round_up(half_bytes, page_bytes_));
  const int64_t new_user = std::max(user_bytes_, round_up(user_bytes, page_bytes_));
  const std::array<ArenaRange, 3> added = {ArenaRange{layout_.half_offset(0) + half_bytes_, new_half - half_bytes_},
                                           ArenaRange{layout_.half_offset(1) + half_bytes_, new_half - half_bytes_},
                                           ArenaRange{layout_.user_offset() + user_bytes_, new_user - user_bytes_}};
  ranges_.reserve(ranges_.size() + added.size());
  size_t done = 0;
  try {
    for (; done < added.size(); ++done) {
      if (added[done].bytes > 0) commit(added[done]);
    }
    const std::lock_guard lock(user_mutex_);
    user_.grow(new_user);
  } catch (...) {
    while (done > 0) {
      if (added[--done].bytes > 0) uncommit(added[done]);
    }
    throw;
  }
  std::copy_if(added.begin(), added.end(), std::back_inserter(ranges_), [](ArenaRange r) { return r.bytes > 0; });
  half_bytes_ = new_half;
  user_bytes_ = new_user;
}

void Arena::map_peer(Rank p, ArenaRange range, UniqueFd fd) {
  if (is_closed()) throw Error(ErrorKind::closed, {.what = "the arena is closed", .where = where()});
  TILEWIRE_CHECK(p != rank_ && p.value >= 0 && p.value < layout_.flags.ranks, ErrorKind::invalid_argument,
                 "rank {} maps the arena of rank {}, {} ranks", rank_, p, layout_.flags.ranks);
  map_peer_range(p, range, std::move(fd));
}

std::byte* Arena::allocate_user(int64_t bytes, int64_t alignment) {
  TILEWIRE_CHECK_GE(bytes, 0, ErrorKind::invalid_argument, "bytes of the user area");
  TILEWIRE_CHECK(is_power_of_two(alignment) && alignment <= kMaxUserAlignmentBytes, ErrorKind::invalid_argument,
                 "alignment {} is no power of two up to {}", alignment, kMaxUserAlignmentBytes);
  const std::lock_guard lock(user_mutex_);
  if (is_closed_) throw Error(ErrorKind::closed, {.what = "the arena is closed", .where = where()});
  const std::optional<int64_t> offset = user_.allocate(bytes, alignment);
  if (!offset) {
    throw Error(
        ErrorKind::resource,
        {.what = "no room in the user area of the arena",
         .where = where(),
         .values = fmt::format("{} bytes asked, {} of {} in use, longest free run {}", bytes, user_.used_bytes(),
                               user_.size_bytes(), user_.largest_free_bytes()),
         .limit = fmt::format("{} bytes are reserved by TILEWIRE_USER_ARENA_RESERVE_BYTES", layout_.user_stride_bytes),
         .advice = "free tensors, or raise the option on all ranks"});
  }
  return base_ + layout_.user_offset() + *offset;
}

void Arena::free_user(std::byte* pointer) {
  const std::lock_guard lock(user_mutex_);
  // As numbers: the difference of unrelated pointers means nothing.
  const auto offset = static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer) -
                                           reinterpret_cast<uintptr_t>(base_ + layout_.user_offset()));
  if (is_unmapped_ || !user_.free(offset)) {
    throw Error(ErrorKind::invalid_argument, {.what = "not memory that the user area has handed out",
                                              .where = where(),
                                              .values = fmt::format("{}", static_cast<const void*>(pointer))});
  }
  if (is_closed_ && user_.is_empty()) release_own();
}

int64_t Arena::user_bytes_for(int64_t bytes, int64_t alignment) const {
  check_area(where(), "user", bytes, layout_.user_stride_bytes, "TILEWIRE_USER_ARENA_RESERVE_BYTES");
  TILEWIRE_CHECK(is_power_of_two(alignment) && alignment <= kMaxUserAlignmentBytes, ErrorKind::invalid_argument,
                 "alignment {} is no power of two up to {}", alignment, kMaxUserAlignmentBytes);
  const std::lock_guard lock(user_mutex_);
  return round_up(user_.size_for(bytes, alignment), page_bytes_);
}

int64_t Arena::user_area_offset(const void* pointer) const {
  const std::lock_guard lock(user_mutex_);
  if (is_unmapped_) return -1;
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const auto begin = reinterpret_cast<uintptr_t>(base_ + layout_.user_offset());
  if (address < begin || address - begin >= static_cast<uintptr_t>(user_.size_bytes())) return -1;
  return static_cast<int64_t>(address - reinterpret_cast<uintptr_t>(base_));
}

bool Arena::is_closed() const {
  const std::lock_guard lock(user_mutex_);
  return is_closed_;
}

void Arena::close() noexcept {
  const std::lock_guard lock(user_mutex_);
  if (is_closed_) return;
  is_closed_ = true;
  unmap_peers();
  std::fill(peers_.begin(), peers_.end(), nullptr);
  exports_.clear();
  close_exports();
  if (user_.is_empty()) release_own();
}

void Arena::finish() noexcept {
  close();
  const std::lock_guard lock(user_mutex_);
  release_own();
}

void Arena::release_own() noexcept {
  if (is_unmapped_) return;
  is_unmapped_ = true;
  unmap_own();
  base_ = nullptr;
  control_ = nullptr;
}

}  // namespace tilewire

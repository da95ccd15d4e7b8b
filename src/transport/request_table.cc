#include "transport/request_table.h"

#include <algorithm>

namespace tilewire {
namespace {

constexpr uint32_t kMostCredits = 1u << 16;

}  // namespace

uint32_t RequestTable::credits(uint32_t max_outstanding) {
  const uint32_t reserve = max_outstanding >= 8 ? max_outstanding / 8 : 1;
  const uint32_t below = max_outstanding > reserve ? max_outstanding - reserve : 1;
  return std::clamp<uint32_t>(below, 2, kMostCredits);
}

RequestTable::RequestTable(uint32_t max_outstanding) : slots_(credits(max_outstanding)) {
  for (uint32_t i = static_cast<uint32_t>(slots_.size()); i > 0; --i) free_.push_back(i - 1);
}

uint32_t RequestTable::add(const WriteRequest& request, Epoch epoch, uint32_t word) {
  const uint32_t index = free_.back();
  free_.pop_back();
  RequestSlot& slot = slots_[index];
  slot.request = request;
  slot.request.id = id_of(index, slot.generation);
  slot.epoch = epoch;
  slot.word = word;
  slot.flag_follows = false;
  slot.next_of_word = 0;
  slot.is_busy = true;
  return index;
}

std::optional<uint32_t> RequestTable::take_completion(uint64_t id) {
  const auto index = static_cast<uint32_t>(id);
  if (index >= slots_.size()) return std::nullopt;
  RequestSlot& slot = slots_[index];
  if (!slot.is_busy || slot.request.id != id || id != id_of(index, slot.generation)) return std::nullopt;
  ++slot.generation;
  return index;
}

void RequestTable::set_next(uint32_t index, const WriteRequest& request) {
  RequestSlot& slot = slots_[index];
  slot.request = request;
  slot.request.id = id_of(index, slot.generation);
}

void RequestTable::release(uint32_t index) {
  slots_[index].is_busy = false;
  free_.push_back(index);
}

}  // namespace tilewire

#include "transport/srd/lane.h"

#include <algorithm>

namespace tilewire {

using namespace verbs;

void SrdLane::begin() {
  if (batch_.empty()) queue_.start();
}

void SrdLane::add(const SrdFlight& flight, const SrdTarget& target, const Piece& piece, const uint32_t* immediate) {
  begin();
  const uint32_t number = flights_.take(flight);
  if (immediate != nullptr) {
    queue_.add_immediate(number, target, piece, *immediate);
  } else {
    queue_.add_write(number, target, piece);
  }
  batch_.push_back({number});
}

bool SrdLane::try_add(const WriteRequest& request, std::span<const Piece> pieces, SrdPath& path) {
  const bool has_immediate = request.kind == RequestKind::write_with_immediate;
  if (!flushed_.empty() || flights_.room() < std::max<size_t>(1, pieces.size())) return false;
  if (has_immediate && !path.credits.has_room()) return false;
  if (pieces.size() > 1) {
    add_split(request, pieces, path);
  } else {
    add({.id = request.id, .peer = request.peer}, path.target, pieces.empty() ? path.nothing : pieces[0],
        has_immediate ? &request.immediate : nullptr);
  }
  if (has_immediate) {
    path.credits.use();
    batch_.back().credits = &path.credits;
  }
  return true;
}

void SrdLane::add_split(const WriteRequest& request, std::span<const Piece> pieces, const SrdPath& path) {
  if (free_splits_.empty()) {
    free_splits_.push_back(static_cast<uint32_t>(splits_.size()));
    splits_.emplace_back();
  }
  const uint32_t number = free_splits_.back();
  free_splits_.pop_back();
  batch_splits_.push_back(number);
  const bool has_immediate = request.kind == RequestKind::write_with_immediate;
  const std::span<const Piece> parts = pieces.first(pieces.size() - (has_immediate ? 1 : 0));
  splits_[number] = {
      .request = request, .target = path.target, .last = pieces.back(), .left = static_cast<uint32_t>(parts.size())};
  for (const Piece& part : parts) {
    add({.id = request.id, .peer = request.peer, .kind = SrdFlightKind::part, .split = number}, path.target, part,
        nullptr);
  }
  if (has_immediate) flights_.reserve();
}

bool SrdLane::try_add_own(SrdFlightKind kind, SrdPath& path, const Piece& piece, uint32_t immediate) {
  if (!flushed_.empty() || flights_.room() == 0 || !path.credits.has_room()) return false;
  add({.peer = path.peer, .kind = kind}, path.target, piece, &immediate);
  path.credits.use();
  batch_.back().credits = &path.credits;
  return true;
}

void SrdLane::undo_batch() {
  for (const Added& added : batch_) {
    flights_.give_back(added.flight);
    if (added.credits != nullptr) added.credits->unuse();
  }
  for (const uint32_t number : batch_splits_) {
    if (splits_[number].request.kind == RequestKind::write_with_immediate) flights_.unreserve();
    free_split(number);
  }
}

bool SrdLane::post(EventList& events) {
  if (batch_.empty()) return true;
  const int error = queue_.finish();
  if (error == ENOMEM) {
    undo_batch();
  } else if (error != 0) {
    for (const Added& added : batch_) end_flight(added.flight, srd_status(abi::kWcLocQpOpErr, 0), events);
  }
  batch_.clear();
  batch_splits_.clear();
  return error != ENOMEM;
}

void SrdLane::free_split(uint32_t number) { free_splits_.push_back(number); }

void SrdLane::end_flight(uint32_t number, int32_t status, EventList& events) {
  const SrdFlight flight = flights_.give_back(number);
  if (flight.kind == SrdFlightKind::part) return end_part(flight, status, events);
  const bool is_request = flight.kind == SrdFlightKind::whole;
  if (status != 0) return tell_failure(is_request ? EventKind::failed : EventKind::own_failed, flight, status, events);
  if (is_request) events.add({.kind = EventKind::completed, .peer = flight.peer, .id = flight.id});
}

void SrdLane::tell_failure(EventKind kind, const SrdFlight& flight, int32_t status, EventList& events) {
  const Event event{.kind = kind, .peer = flight.peer, .id = flight.id, .status = status};
  if (!is_flush(status)) return events.add(event);
  flushed_.push_back(event);
}

void SrdLane::end_part(const SrdFlight& flight, int32_t status, EventList& events) {
  Split& split = splits_[flight.split];
  if (status != 0 && !std::exchange(split.has_failed, true)) {
    tell_failure(EventKind::failed, flight, status, events);
  }
  if (--split.left > 0) return;
  const bool has_immediate = split.request.kind == RequestKind::write_with_immediate;
  if (split.has_failed) {
    if (has_immediate) flights_.unreserve();
    return free_split(flight.split);
  }
  if (has_immediate) return late_.push_back(flight.split);
  events.add({.kind = EventKind::completed, .peer = flight.peer, .id = flight.id});
  free_split(flight.split);
}

// Their entries are reserved and their credits used.
void SrdLane::post_late(EventList& events) {
  if (late_.empty() || !flushed_.empty()) return;
  for (const uint32_t number : late_) {
    const Split& split = splits_[number];
    flights_.unreserve();
    add({.id = split.request.id, .peer = split.request.peer}, split.target, split.last, &split.request.immediate);
  }
  if (!post(events)) {
    for (size_t i = 0; i < late_.size(); ++i) flights_.reserve();
    return;
  }
  for (const uint32_t number : late_) free_split(number);
  late_.clear();
}

void SrdLane::take_sent(EventList& events) {
  queue_.take_sent([&](const SrdSent& sent) { end_flight(sent.flight, sent.status, events); });
  post_late(events);
  if (flushed_.empty() || flights_.are_any()) return;
  for (const Event& event : flushed_) events.add(event);
  flushed_.clear();
}

void SrdLane::check_receives() const {
  const int32_t failure = queue_.receive_failure();
  if (failure == 0 || (is_flush(failure) && flights_.are_any())) return;
  queue_.fail_receive();
}

}  // namespace tilewire

// Command rings, proxies and the network between nodes.
#include <fmt/format.h>

#include <algorithm>

#include "schedule/simulator/world.h"

namespace tilewire {

int32_t World::new_message() {
  if (free_messages_.empty()) {
    messages_.emplace_back();
    return static_cast<int32_t>(messages_.size()) - 1;
  }
  const int32_t m = free_messages_.back();
  free_messages_.pop_back();
  std::vector<Segment> pieces = std::move(messages_[static_cast<size_t>(m)].pieces);
  pieces.clear();
  messages_[static_cast<size_t>(m)] = SimMessage{};
  messages_[static_cast<size_t>(m)].pieces = std::move(pieces);
  return m;
}

void World::release_if_over(int32_t message) {
  SimMessage& m = messages_[static_cast<size_t>(message)];
  if (!m.is_complete || !m.has_flag_landed) return;
  m.from = -1;
  free_messages_.push_back(message);
}

void World::give_command(int32_t agent, const Command& command) {
  const AgentState& s = agents_[static_cast<size_t>(agent)];
  const AgentPlace& place = s.agent->place;
  const int32_t call = ranks_[static_cast<size_t>(s.rank)].call;
  const bool is_end = command.kind == CommandKind::call_end;
  const bool has_peer = is_end || (fits(command) && command.peer.value < topology_.ranks &&
                                   !topology_.same_node(Rank{s.rank}, command.peer));
  if (place.ring < 0 || place.ring >= program_->rings || !fits(command) || !has_peer) {
    add_violation(ViolationKind::bad_command, s.rank, agent,
                  fmt::format("a command on ring {} for rank {}, word {}: no such ring, field out of range, or a peer "
                              "that is not on another node",
                              place.ring, command.peer.value, command.word));
    return;
  }
  RingState& ring = rings_[static_cast<size_t>(s.rank) * program_->rings + place.ring];
  const bool has_other = ring.producer >= 0 && ring.producer != agent && ring.producer_call == call &&
                         !agents_[static_cast<size_t>(ring.producer)].is_finished;
  if (has_other || ring.ended_call >= call) {
    add_violation(ViolationKind::ring_misuse, s.rank, agent,
                  has_other ? fmt::format("ring {} has two producers", place.ring)
                            : fmt::format("a command on ring {} behind its call_end", place.ring));
  }
  ring.producer = agent;
  ring.producer_call = call;
  if (is_end) ring.ended_call = call;
  const int32_t index = new_message();
  SimMessage& m = messages_[static_cast<size_t>(index)];
  m.command = command;
  m.from = s.rank;
  m.ring = s.rank * program_->rings + place.ring;
  m.call = call;
  if (!is_end) {
    const int64_t word = word_at(command.peer.value, command.word);
    note_signal(word, call, agent, s.rank);
    // Slots a planted fault leads astray.
    if (!options_->faults.empty() && command.kind == CommandKind::write &&
        planted(SimFault::wrong_slot, agent, s.published, -1) != nullptr) {
      m.command.dst_unit += command.units;
    }
  }
  if (ring.last >= 0) {
    messages_[static_cast<size_t>(ring.last)].next = index;
  } else {
    ring.first = index;
    list(SimStep::post, m.ring);
  }
  ring.last = index;
}

void World::post(int32_t ring_index) {
  RingState& ring = rings_[static_cast<size_t>(ring_index)];
  const int32_t index = ring.first;
  SimMessage& m = messages_[static_cast<size_t>(index)];
  ring.first = m.next;
  if (ring.first < 0) ring.last = -1;
  if (ring.first >= 0) list(SimStep::post, ring_index);
  m.next = -1;
  m.posted_call = ring.call;
  if (m.call != ring.call) {
    add_violation(ViolationKind::missing_call_end, m.from, -1,
                  fmt::format("ring {} carries a command of call {}, but call_end({}) never came on it",
                              ring_index % program_->rings, program_->epoch(m.call), program_->epoch(ring.call)));
    m.posted_call = ring.call = m.call;  // one report is enough
  }
  if (m.command.kind == CommandKind::call_end) return end_ring_call(ring_index, m);
  ++report_.messages;
  ++outstanding_[static_cast<size_t>(m.from) * program_->calls.size() + static_cast<size_t>(m.posted_call)];
  const int64_t at = word_at(m.command.peer.value, m.command.word);
  WordState& word = words_.at(at);
  if (word.in_flight > 0) {
    add_violation(ViolationKind::word_in_flight, m.from, -1,
                  fmt::format("word {} of rank {} is written over the network again while its previous write is in "
                              "flight",
                              m.command.word, m.command.peer.value),
                  at);
  }
  ++word.in_flight;
  if (m.command.kind == CommandKind::write && options_->checks_memory) {
    const MemoryRange from{Rank{m.from}, m.command.from_user ? SimArea::user : SimArea::half,
                           static_cast<int64_t>(m.command.src_unit) * kWireUnitBytes,
                           int64_t{m.command.units} * kWireUnitBytes};
    Place place;
    if (locate(from, m.posted_call, -1, place)) memory(place).collect(place.begin, place.end, m.pieces);
  }
  m.has_data_landed = m.command.kind == CommandKind::signal;
  if (options_->network == SimNetwork::counted) {
    list(SimStep::land, index);
  } else {
    enter_channel(index);
  }
}

void World::end_ring_call(int32_t ring_index, const SimMessage& m) {
  RingState& ring = rings_[static_cast<size_t>(ring_index)];
  if (m.command.epoch != program_->epoch(ring.call)) {
    add_violation(ViolationKind::missing_call_end, m.from, -1,
                  fmt::format("call_end({}) where call_end({}) was due on ring {}", m.command.epoch,
                              program_->epoch(ring.call), ring_index % program_->rings));
  }
  ++ring.call;
  const int32_t from = m.from;
  const auto index = static_cast<int32_t>(&m - messages_.data());
  messages_[static_cast<size_t>(index)].has_flag_landed = true;
  messages_[static_cast<size_t>(index)].is_complete = true;
  release_if_over(index);
  list_sent(from);
}

void World::enter_channel(int32_t index) {
  SimMessage& m = messages_[static_cast<size_t>(index)];
  const int64_t nic = m.command.word % static_cast<uint32_t>(options_->nics);
  m.channel = static_cast<int32_t>((int64_t{m.from} * topology_.ranks + m.command.peer.value) * options_->nics + nic);
  ChannelState& c = channels_[static_cast<size_t>(m.channel)];
  if (c.last >= 0) {
    messages_[static_cast<size_t>(c.last)].next = index;
  } else {
    c.first = index;
    list(SimStep::land, index);
  }
  c.last = index;
}

void World::land(int32_t index) {
  SimMessage& m = messages_[static_cast<size_t>(index)];
  if (options_->network == SimNetwork::ordered) return land_ordered(index);
  if (!m.has_data_landed) land_data(m);
  list(SimStep::arrive, index);
  list(SimStep::complete, index);
}

// First the data, in a later step the flag; only then the next message of the channel.
void World::land_ordered(int32_t index) {
  SimMessage& m = messages_[static_cast<size_t>(index)];
  if (!m.has_data_landed) {
    land_data(m);
    return list(SimStep::land, index);
  }
  ChannelState& c = channels_[static_cast<size_t>(m.channel)];
  c.first = m.next;
  if (c.first < 0) c.last = -1;
  if (c.first >= 0) list(SimStep::land, c.first);
  m.next = -1;
  m.has_flag_landed = true;
  list(SimStep::complete, index);
  const int64_t at = word_at(m.command.peer.value, m.command.word);
  --words_.at(at).in_flight;
  set_word(at, program_->epoch(m.posted_call), m.posted_call);
}

void World::land_data(SimMessage& m) {
  m.has_data_landed = true;
  if (!options_->checks_memory) return;
  const int64_t src = half_base(m.posted_call) + static_cast<int64_t>(m.command.src_unit) * kWireUnitBytes;
  const int64_t bytes = int64_t{m.command.units} * kWireUnitBytes;
  const MemoryRange to{m.command.peer, SimArea::half, static_cast<int64_t>(m.command.dst_unit) * kWireUnitBytes, bytes};
  Place place;
  if (!locate(to, m.posted_call, -1, place)) return;
  const int64_t user_src = program_->arena.user_offset() - program_->arena.half_offset(0) +
                           static_cast<int64_t>(m.command.src_unit) * kWireUnitBytes;
  const int64_t shift = place.begin - (m.command.from_user ? user_src : src);
  for (Segment piece : m.pieces) {
    piece.begin += shift;
    piece.end += shift;
    piece.origin += shift;
    piece.writer = m.from;
    land_segment(place, piece, m.posted_call, -1);
  }
}

// The receiver's proxy puts the immediate into its arrival ring.
void World::arrive(int32_t index) {
  SimMessage& m = messages_[static_cast<size_t>(index)];
  const int32_t rank = m.command.peer.value;
  RelayState& ring = relays_[static_cast<size_t>(rank)];
  m.next = -1;
  if (ring.last >= 0) {
    messages_[static_cast<size_t>(ring.last)].next = index;
  } else {
    ring.first = index;
    list(SimStep::relay, rank);
  }
  ring.last = index;
}

// The relay role takes the next entry of the ring and publishes its word, for whatever call it is.
void World::relay(int32_t rank) {
  RelayState& ring = relays_[static_cast<size_t>(rank)];
  const int32_t index = ring.first;
  SimMessage& m = messages_[static_cast<size_t>(index)];
  ring.first = m.next;
  if (ring.first < 0) ring.last = -1;
  if (ring.first >= 0) list(SimStep::relay, rank);
  m.next = -1;
  const Epoch near = program_->epoch(std::max(0, ranks_[static_cast<size_t>(rank)].call));
  RelayWork w;
  ring.role.next(w);
  w.arrival = unpack_immediate(pack(Immediate{m.command.word, program_->epoch(m.posted_call)}), near);
  const Publish published = ring.role.publish(w, 0);
  const int64_t at = word_at(published.to.value, published.word);
  --words_.at(at).in_flight;
  const Epoch seen = word_value(at);
  const Epoch value = options_->publishes_maximum ? std::max(seen, w.arrival.epoch) : w.arrival.epoch;
  m.has_flag_landed = true;
  const int32_t call = m.posted_call;
  release_if_over(index);
  set_word(at, value, call);
}

void World::complete(int32_t index) {
  SimMessage& m = messages_[static_cast<size_t>(index)];
  if (m.command.kind == CommandKind::write && options_->checks_memory) {
    const int area = m.command.from_user ? 2 : static_cast<int>(program_->epoch(m.posted_call) & 1);
    const ShadowMemory& source = memory_[static_cast<size_t>(m.from) * 3 + area];
    int32_t writer = 0;
    for (const Segment& p : m.pieces) {
      if (p.content == 0 || source.holds(p.begin, p.end, p.content, p.origin, writer)) continue;
      add_violation(ViolationKind::source_overwritten, m.from, -1,
                    fmt::format("{} at bytes {}..{} was overwritten while the network still read it",
                                content_text(p.content, program_->first_epoch), p.begin, p.end),
                    -1, p.begin, p.end);
      break;
    }
  }
  m.is_complete = true;
  --outstanding_[static_cast<size_t>(m.from) * program_->calls.size() + static_cast<size_t>(m.posted_call)];
  const int32_t from = m.from;
  release_if_over(index);
  list_sent(from);
}

// sent(e) is due when all rings have shown call_end(e) and nothing of it is outstanding.
void World::list_sent(int32_t rank) {
  RankState& r = ranks_[static_cast<size_t>(rank)];
  if (r.is_sent_listed || r.sent_call >= static_cast<int32_t>(program_->calls.size())) return;
  for (int32_t i = 0; i < program_->rings; ++i) {
    if (ring(rank, i).call <= r.sent_call) return;
  }
  if (outstanding_[static_cast<size_t>(rank) * program_->calls.size() + static_cast<size_t>(r.sent_call)] > 0) return;
  r.is_sent_listed = true;
  list(SimStep::publish_sent, rank);
}

void World::publish_sent(int32_t rank) {
  RankState& r = ranks_[static_cast<size_t>(rank)];
  r.is_sent_listed = false;
  const int32_t call = r.sent_call++;
  const int64_t at = word_at(rank, FlagLayout::sent());
  words_.at(at).reached = static_cast<uint16_t>(call + 1);
  wake(at);
  list_sent(rank);
}

}  // namespace tilewire

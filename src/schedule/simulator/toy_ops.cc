#include "schedule/simulator/toy_ops.h"

#include <algorithm>

namespace tilewire {

void ScriptModel::touch(const ScriptWork& w, Touch& t) const {
  // The network reads for a command; what a tile reads is part of its flops.
  const bool is_charged = !w.piece->command.has_value() && w.piece->tile < 0;
  for (const Access& a : w.piece->accesses) {
    switch (a.kind) {
      case Access::Kind::read: is_charged ? t.read(a.from, a.content) : t.need(a.from, a.content); break;
      case Access::Kind::write: t.write(a.to, a.content); break;
      case Access::Kind::copy: t.copy(a.from, a.to, a.content); break;
    }
  }
  if (w.piece->tile >= 0) t.tile(w.piece->tile, 1e6);
}

Toy::Toy(const std::vector<int32_t>& ranks_per_node, Epoch first_epoch, int64_t half_bytes) {
  program.topology = TopologyTables::from_layout(ranks_per_node);
  program.arena = {.flags = {.ranks = program.ranks(), .max_chunks = 32},
                   .half_stride_bytes = half_bytes,
                   .user_stride_bytes = 4096};
  program.first_epoch = first_epoch;
  program.rings = ranks_per_node.size() > 1 ? 2 : 0;
}

CallFrame Toy::frame(Rank me) const {
  return {.topology = program.topology.view(),
          .arena = program.arena,
          .me = me,
          .epoch = program.epoch(static_cast<int32_t>(program.calls.size()) - 1)};
}

MemoryRange Toy::slot(Rank rank, int64_t slot, int64_t bytes) const {
  return {rank, SimArea::half, program.arena.data_offset() + slot * bytes, bytes};
}

uint32_t Toy::word(int32_t family, int32_t source, int32_t chunk) const {
  return program.arena.flags.chunk(family, Rank{source}, Chunk{chunk});
}

// A piece of work that copies to a rank of the own node, or asks the proxy to.
ScriptPiece Toy::hand_over(Rank from, Rank to, const Access& copy, uint32_t word) const {
  if (program.topology.view().same_node(from, to)) {
    return {.publishes = {{to, word}}, .accesses = {copy}};
  }
  const Command command{.kind = CommandKind::write,
                        .peer = to,
                        .word = word,
                        .units = static_cast<uint32_t>(copy.from.bytes / kWireUnitBytes),
                        .src_unit = static_cast<uint64_t>(copy.from.offset_bytes / kWireUnitBytes),
                        .dst_unit = static_cast<uint64_t>(copy.to.offset_bytes / kWireUnitBytes)};
  Access read = copy;
  read.kind = Access::Kind::read;
  return {.command = command, .accesses = {read}};
}

void Toy::end_ring(Rank me, Script* script) const {
  if (program.rings == 0) return;
  script->push_back({.command = Command{.kind = CommandKind::call_end, .epoch = frame(me).epoch}});
}

SimCall& Toy::add_ring_broadcast(const RingShape& shape) {
  SimCall& call = program.add_call();
  for (int32_t r = 0; r < program.ranks(); ++r) add_ring_rank(call, shape, Rank{r});
  return call;
}

void Toy::add_ring_rank(SimCall& call, const RingShape& shape, Rank me) {
  const int32_t ranks = program.ranks();
  const int32_t place = (me.value - shape.root + ranks) % ranks;
  const Rank before{(me.value - 1 + ranks) % ranks}, behind{(me.value + 1) % ranks};
  const Need begun{program.arena.flags.begun(place == 0 ? me : before), 0};
  Script *own = new_script(), *forward = new_script(), *compute = new_script(), *drain = new_script();
  drain->emplace_back();
  for (int32_t c = 0; c < shape.chunks; ++c) {
    const uint32_t w = word(0, shape.root, c);
    const Content content{0, Rank{shape.root}, c, 0};
    const MemoryRange mine = slot(me, c, shape.chunk_bytes), theirs = slot(behind, c, shape.chunk_bytes);
    if (place == 0) own->push_back({.publishes = {{me, w}}, .accesses = {{Access::Kind::write, {}, mine, content}}});
    if (place < ranks - 1) {
      forward->push_back(hand_over(me, behind, {Access::Kind::copy, mine, theirs, content}, w));
      forward->back().needs = {begun, {w, 0}};
    }
    if (c % shape.read_every == 0) {
      compute->push_back({.needs = {begun, {w, 0}},
                          .accesses = {{Access::Kind::read, mine, {}, content}},
                          .tile = static_cast<int64_t>(compute->size())});
    }
    drain->back().needs.push_back({w, 0});
  }
  end_ring(me, forward);
  call.set_tiles(me, static_cast<int64_t>(compute->size()));
  add_call_roles(call, frame(me), program.rings > 0 ? 0 : -1);
  call.add(me, {.role = "own"}, ScriptModel{own});
  call.add(me, {.role = "forward", .ring = 1, .has_cursors = true, .cursors = shape.cursors}, ScriptModel{forward});
  call.add(me, {.role = "compute", .has_cursors = true, .cursors = shape.cursors}, ScriptModel{compute});
  call.add(me, {.role = "drain", .stage = kDrainStage}, ScriptModel{drain});
}

SimCall& Toy::add_window(const WindowShape& shape) {
  SimCall& call = program.add_call();
  for (int32_t r = 0; r < program.ranks(); ++r) add_window_rank(call, shape, Rank{r});
  return call;
}

void Toy::add_window_rank(SimCall& call, const WindowShape& shape, Rank me) {
  const Rank producer{shape.producer}, consumer{shape.consumer};
  const bool is_near = program.topology.view().same_node(producer, consumer);
  Script *make = new_script(), *work = new_script(), *drain = new_script();
  drain->emplace_back();
  const auto content = [&](int32_t c) { return Content{0, producer, c, 0}; };
  const auto arrived = [&](int32_t c) { return word(0, shape.producer, c); };
  const auto credit = [&](int32_t c) { return word(1, shape.consumer, c); };
  for (int32_t i = 0; me == producer && i < shape.chunks; ++i) {
    const int32_t c = shape.is_reversed ? shape.chunks - 1 - i : i;
    // Chunks are made in the producer's own half, each in its own place, and go to slots of the consumer's.
    const MemoryRange source = slot(me, c, shape.chunk_bytes);
    const MemoryRange target = slot(consumer, c % shape.slots, shape.chunk_bytes);
    const uint32_t made = word(2, shape.producer, c);
    make->push_back({.publishes = {{me, made}}, .accesses = {{Access::Kind::write, {}, source, content(c)}}});
    work->push_back(hand_over(me, consumer, {Access::Kind::copy, source, target, content(c)}, arrived(c)));
    work->back().needs = {{made, 0}};
    if (i >= shape.window) {
      work->back().needs.push_back({credit(shape.is_reversed ? c + shape.window : c - shape.window), 0});
    }
    drain->back().needs.insert(drain->back().needs.end(), {{made, 0}, {credit(c), 0}});
  }
  for (int32_t c = 0; me == consumer && c < shape.chunks; c += shape.span) {
    ScriptPiece tile{.needs = {{program.arena.flags.begun(producer), 0}}, .tile = c / shape.span};
    std::vector<ScriptPiece> signals;
    for (int32_t i = c; i < std::min(c + shape.span, shape.chunks); ++i) {
      tile.needs.push_back({arrived(i), 0});
      tile.accesses.push_back({Access::Kind::read, slot(me, i % shape.slots, shape.chunk_bytes), {}, content(i)});
      drain->back().needs.push_back({arrived(i), 0});
      if (is_near) {
        tile.publishes.push_back({producer, credit(i)});
      } else {
        signals.push_back({.command = Command{.kind = CommandKind::signal, .peer = producer, .word = credit(i)}});
      }
    }
    work->push_back(tile);
    work->insert(work->end(), signals.begin(), signals.end());
  }
  end_ring(me, work);
  call.set_tiles(me, me == consumer ? (shape.chunks + shape.span - 1) / shape.span : 0);
  add_call_roles(call, frame(me), program.rings > 0 ? 0 : -1);
  call.add(me, {.role = "make"}, ScriptModel{make});
  call.add(me,
           {.role = me == producer ? "produce" : "consume", .ring = 1, .has_cursors = true, .cursors = shape.cursors},
           ScriptModel{work});
  call.add(me, {.role = "drain", .stage = kDrainStage}, ScriptModel{drain});
}

}  // namespace tilewire

#include "device/reduction/reduction_setup.cuh"

namespace tilewire {

std::vector<CUtensorMap> encode_slots(const ReductionSchedule& s, std::span<const int32_t> source_slots,
                                      const DeviceRank& rank, DataType partial, TensorBox box) {
  std::vector<CUtensorMap> maps;
  if (partial == DataType::fp32) box.cols /= 2;  // of as many bytes
  for (Epoch half = 0; half < 2; ++half) {
    for (int32_t l = 0; l < s.width(); ++l) {
      std::byte* arena = rank.arenas.at(static_cast<size_t>(s.source(l).value));
      for (const bool is_last : {false, true}) {
        const ReductionSchedule::SlotShape shape = s.partial_slot_shape(is_last);
        maps.emplace_back();
        const int64_t slots = int64_t{source_slots[static_cast<size_t>(l)]} * s.width();
        if (slots == 0 || shape.cols == 0) continue;
        maps.back() = encode_slot_map("the slots of partial sums",
                                      {.data = arena + s.frame.arena.half_offset(half) + s.buffers.partial_offset(0),
                                       .slots = slots,
                                       .rows = shape.rows,
                                       .cols = shape.cols,
                                       .pitch_bytes = shape.pitch_bytes,
                                       .slot_bytes = s.buffers.partial_slot_bytes,
                                       .type = partial},
                                      box);
      }
    }
  }
  return maps;
}

void place_reduction(DeviceTables& tables, const std::vector<CUtensorMap>& slots, const ReductionWorkLists& works,
                     int32_t sums, ReductionSchedule& s, ReductionView& view) {
  const auto count = [](int32_t number) { return static_cast<size_t>(number); };
  ReductionMap& map = s.map;
  const int32_t chunks = map.total_chunks();
  view.width = s.width();
  view.others = s.other_nodes();
  view.here = s.here().value;
  view.half_maps = view.width * kSlotMaps;
  view.has_tiles = works.tiles.works() > 0;
  place_works(tables, works.tiles, view.tiles);
  constexpr size_t kLineWords = 32;  // 128 bytes: nobody else's
  tables.place_zeroed(view.dealt.taken, kLineWords);
  view.dealt.units = static_cast<uint32_t>(works.tiles.works());
  view.dealt.clusters = static_cast<uint32_t>(s.workers);
  place_works(tables, works.reduce, view.reduce);
  place_works(tables, works.finish, view.finish);
  tables.place_zeroed(view.made, count(chunks));
  tables.place_zeroed(view.summed, count(sums));
  view.slots = slots.data();
  tables.place(view.slots, slots.size());
  tables.place(map.order, count(chunks));
  tables.place(map.rail_order, count(map.rail_chunks));
  tables.place(map.rail_chunk, count(s.topology().ranks));
  tables.place(map.rail_slot, count(s.topology().ranks));
  tables.place(map.source_slots, count(s.width()));
  tables.place(map.blocks.row_begin, count(map.blocks.sources) + 1);
  tables.place(map.blocks.chunk_begin, count(map.blocks.sources) + 1);
}

}  // namespace tilewire

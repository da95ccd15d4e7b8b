// Topology, chunks, tile grid, columns and the arena's layout.
#include <gtest/gtest.h>
#include <tilewire/error.h>
#include <tilewire/options.h>

#include <random>
#include <set>

#include "schedule/arena_layout.h"
#include "schedule/chunk_tables.h"
#include "schedule/column_map.h"
#include "base/hash.h"
#include "schedule/range_grid_tables.h"
#include "schedule/tile_grid.h"
#include "schedule/topology_tables.h"
#include "schedule/word_text.h"

namespace tilewire {
namespace {

TEST(Topology, RailPartnersOfUnevenNodesWrapAround) {
  const TopologyTables tables = TopologyTables::from_layout({3, 1, 2});
  const Topology t = tables.view();
  EXPECT_EQ(tables.describe(), "3+1+2");
  EXPECT_EQ(t.rail_partner(Rank{2}, Node{1}), Rank{3});  // local 2 on a node of 1
  EXPECT_EQ(t.rail_partner(Rank{2}, Node{2}), Rank{4});  // local 2 mod 2
  EXPECT_EQ(t.rail_partner(Rank{5}, Node{0}), Rank{1});  // local 1 on a node of 3
  EXPECT_EQ(t.entry_rank(Rank{5}, Rank{2}), Rank{1});
  EXPECT_EQ(t.deliverer(Rank{5}, Rank{2}), Rank{1});
  EXPECT_EQ(t.deliverer(Rank{5}, Rank{1}), Rank{5});
}

TEST(Topology, EndingCallsTogetherIsSymmetricAndCoversWhoeverDelivers) {
  for (const auto& layout : std::vector<std::vector<int32_t>>{{3, 1}, {2, 3}, {1, 1, 2}, {4, 1, 3}, {8, 8}}) {
    const TopologyTables tables = TopologyTables::from_layout(layout);
    const Topology t = tables.view();
    for (int32_t a = 0; a < t.ranks; ++a) {
      for (int32_t b = 0; b < t.ranks; ++b) {
        EXPECT_EQ(t.ends_together(Rank{a}, Rank{b}), t.ends_together(Rank{b}, Rank{a}));
        EXPECT_TRUE(a == b || t.ends_together(t.deliverer(Rank{a}, Rank{b}), Rank{b}));
      }
    }
  }
}

TEST(Topology, RanksDealtRoundRobinOverNodesKeepTheirNumbers) {
  const TopologyTables tables = TopologyTables::from_nodes({0, 1, 0, 1});
  const Topology t = tables.view();
  EXPECT_EQ(t.rank_at(Node{1}, LocalRank{0}), Rank{1});
  EXPECT_EQ(t.rail_partner(Rank{2}, Node{1}), Rank{3});
}

TEST(Topology, NodesWithoutRanksAreRefused) {
  EXPECT_THROW(TopologyTables::from_layout({2, 0}), Error);
  EXPECT_THROW(TopologyTables::from_layout({}), Error);
  EXPECT_THROW(TopologyTables::from_nodes({0, 2}), Error);
  EXPECT_THROW(TopologyTables::from_nodes({0, -1}), Error);
}

TEST(ChunkMap, EveryRowIsInExactlyOneChunkOfItsSource) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<int64_t> rows;
    for (int r = 0; r < 6; ++r) rows.push_back(random() % 3 == 0 ? 0 : random() % 30);
    const ChunkTables tables(rows, 1 + random() % 9);
    const ChunkMap map = tables.view();
    int64_t row = 0;
    for (int32_t g = 0; g < map.total_chunks(); ++g) {
      const ChunkRef c = map.at(g);
      ASSERT_EQ(map.global(c), g);
      const RowRange range = map.rows(c);
      ASSERT_EQ(range.begin, row);
      ASSERT_GT(range.rows(), 0);
      for (; row < range.end; ++row) {
        ASSERT_EQ(map.of_row(row).source, c.source);
        ASSERT_EQ(map.of_row(row).chunk, c.chunk);
      }
    }
    ASSERT_EQ(row, map.total_rows());
  }
}

TEST(ChunkMap, RowsOfNoBytesHaveNoChunks) {
  const ChunkTables tables({5, 7}, 2, false);
  EXPECT_EQ(tables.view().total_chunks(), 0);
  EXPECT_EQ(tables.view().total_rows(), 12);
}

TEST(ChunkMap, BadCountsAreRefused) {
  EXPECT_THROW(ChunkTables({1, -1}, 4), Error);
  EXPECT_THROW(ChunkTables({1}, 0), Error);
  EXPECT_THROW(ChunkTables({int64_t{1} << 40}, 1), Error);  // more than 2^31 chunks
}

TEST(TileGrid, TheWalkVisitsEachTileOnceInGroupsOfRows) {
  for (const int32_t raster : {1, 2, 3, 100}) {
    const TileGrid grid{.rows = 17, .tile_rows = 4, .row_blocks = 5, .col_blocks = 3, .raster_rows = raster};
    std::set<std::pair<int32_t, int32_t>> seen;
    for (int64_t t = 0; t < grid.tiles(); ++t) {
      const auto at = grid.position(t);
      EXPECT_TRUE(seen.insert({at.row_step, at.col_block}).second);
      EXPECT_EQ(at.row_step / raster, static_cast<int32_t>(t / (int64_t{raster} * 3)));
    }
    EXPECT_EQ(seen.size(), 15u);
    EXPECT_EQ(grid.block_rows(4).rows(), 1);
  }
}

// A role that hands tiles to the owners of their rows cannot have a tile of two owners.
TEST(TileGrid, OverRangesNoTileHasRowsOfTwoAndAllRowsAreCovered) {
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round) {
    std::vector<int64_t> shards;
    for (int r = 0; r < 5; ++r) shards.push_back(random() % 3 == 0 ? 0 : random() % 30);
    const ChunkTables chunks(shards, 1 + random() % 9);
    const ChunkMap map = chunks.view();
    const bool is_over_chunks = round % 2 == 1;
    const RangeGridTables tables(is_over_chunks ? chunk_bounds(map) : source_bounds(map), 1 + random() % 7);
    const TileGrid grid = tables.view();
    int64_t row = 0;
    for (int32_t b = 0; b < grid.row_blocks; ++b) {
      const RowRange rows = grid.block_rows(b);
      ASSERT_EQ(rows.begin, row);
      ASSERT_GT(rows.rows(), 0);
      ASSERT_LE(rows.rows(), grid.tile_rows);
      const ChunkRef first = map.of_row(rows.begin), last = map.of_row(rows.end - 1);
      ASSERT_EQ(first.source, last.source);
      if (is_over_chunks) {
        ASSERT_EQ(first.chunk, last.chunk);
        ASSERT_EQ(grid.range(b), map.global(first));
      } else {
        ASSERT_EQ(grid.range(b), first.source.value);
      }
      row = rows.end;
    }
    ASSERT_EQ(row, map.total_rows());
    ASSERT_EQ(grid.rows, map.total_rows());
  }
}

TEST(TileGrid, OverOneRangeItIsTheGridOverAllRows) {
  const TileGrid plain{.rows = 17, .tile_rows = 4, .row_blocks = 5, .col_blocks = 1};
  const RangeGridTables tables({0, 17}, 4);
  const TileGrid ranged = tables.view();
  ASSERT_EQ(ranged.row_blocks, plain.row_blocks);
  for (int32_t b = 0; b < 5; ++b) {
    EXPECT_EQ(ranged.block_rows(b).begin, plain.block_rows(b).begin);
    EXPECT_EQ(ranged.block_rows(b).end, plain.block_rows(b).end);
    EXPECT_EQ(plain.range(b), 0);
  }
}

// As a kernel has it: all of it is known when the code is compiled.
TEST(TileGrid, OverRangesIsConstexpr) {
  static constexpr int64_t kRows[] = {0, 5, 5, 8};
  static constexpr int32_t kBlocks[] = {0, 2, 2, 3};
  static constexpr TileGrid kGrid{.rows = 8,
                                  .tile_rows = 4,
                                  .row_blocks = 3,
                                  .col_blocks = 2,
                                  .ranges = 3,
                                  .row_begin = kRows,
                                  .block_begin = kBlocks};
  static_assert(kGrid.block_rows(1).begin == 4 && kGrid.block_rows(1).end == 5);
  static_assert(kGrid.block_rows(2).begin == 5 && kGrid.block_rows(2).end == 8);
  static_assert(kGrid.range(1) == 0 && kGrid.range(2) == 2);
  EXPECT_EQ(kGrid.tiles(), 6);
}

TEST(TileGrid, BadRangesAreRefused) {
  EXPECT_THROW(RangeGridTables({0, 5, 3}, 4), Error);
  EXPECT_THROW(RangeGridTables({1, 5}, 4), Error);
  EXPECT_THROW(RangeGridTables({}, 4), Error);
  EXPECT_THROW(RangeGridTables({0, 5}, 0), Error);
  EXPECT_THROW(RangeGridTables({0, int64_t{1} << 40}, 4), Error);
}

TEST(ColumnMap, BlocksCoverEachWeightAndEmptyOnesHaveNone) {
  ColumnMap map{.weights = 3, .tile_cols = 8, .has_gather_copy = true, .cols = {20, 0, 8}};
  EXPECT_EQ(map.blocks(), 3 + 0 + 1 + 1);
  EXPECT_EQ(map.block(2).begin, 16);
  EXPECT_EQ(map.block(2).end, 20);
  EXPECT_EQ(map.block(3).weight, 2);
  EXPECT_FALSE(map.block(3).is_gather_copy);
  EXPECT_TRUE(map.block(4).is_gather_copy);
}

TEST(ArenaLayout, NoTwoWordsShareAnAddressAndAreasDoNotOverlap) {
  for (const int32_t ranks : {2, 3, 64}) {
    const ArenaLayout layout{
        .flags = {.ranks = ranks, .max_chunks = 16}, .half_stride_bytes = 1 << 20, .user_stride_bytes = 1 << 20};
    std::set<int64_t> offsets{layout.word_offset(FlagLayout::sent())};
    for (int32_t r = 0; r < ranks; ++r) {
      EXPECT_TRUE(offsets.insert(layout.word_offset(layout.flags.begun(Rank{r}))).second);
      EXPECT_TRUE(offsets.insert(layout.word_offset(layout.flags.done(Rank{r}))).second);
      for (int32_t f = 0; f < kWordFamilies; ++f) {
        for (int32_t c = 0; c < 16; ++c) {
          EXPECT_TRUE(offsets.insert(layout.word_offset(layout.flags.chunk(f, Rank{r}, Chunk{c}))).second);
        }
      }
    }
    EXPECT_EQ(static_cast<int64_t>(offsets.size()), layout.flags.words() + 1);
    EXPECT_LE(*offsets.rbegin() + 8, layout.flag_bytes());
    EXPECT_GE(layout.half_offset(2), layout.flag_bytes());
    EXPECT_EQ(layout.half_offset(2) % ArenaLayout::kAreaAlignmentBytes, 0) << "GPU memory cannot be mapped there";
    EXPECT_EQ(layout.half_offset(3), layout.half_offset(2) + (1 << 20));
    EXPECT_EQ(layout.user_offset(), layout.half_offset(3) + (1 << 20));
    EXPECT_EQ(layout.total_bytes(), layout.user_offset() + (1 << 20));
    EXPECT_GE(layout.data_offset(), ranks * 16);
  }
}

std::string refusal(const ArenaLayout& layout) {
  try {
    check_limits(layout);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ArenaLayout, DefaultOptionsContradictEachOtherAtNoNumberOfRanks) {
  for (const int32_t ranks : {1, 4, 170, 171, 512, 1024, 4095, 4096}) {
    Options options;
    options.rank = ranks - 1;
    options.world_size = ranks;
    EXPECT_NO_THROW(options.validate()) << ranks;
    const ArenaLayout layout = arena_layout(ranks, options);
    EXPECT_EQ(refusal(layout), "") << ranks;
    // As many as there are words for, and no more than are ever of use.
    ArenaLayout more = layout;
    ++more.flags.max_chunks;
    EXPECT_TRUE(layout.flags.max_chunks == 1024 || refusal(more) != "") << ranks;
    EXPECT_GE(layout.flags.max_chunks, 32) << ranks;
  }
}

TEST(ArenaLayout, AGivenNumberOfChunksIsTakenAsItIs) {
  Options options;
  options.max_chunks_per_source = 1024;
  EXPECT_EQ(arena_layout(170, options).flags.max_chunks, 1024);
  EXPECT_EQ(refusal(arena_layout(170, options)), "");
  EXPECT_NE(refusal(arena_layout(171, options)).find("MAX_CHUNKS_PER_SOURCE to 1021 on all 171"), std::string::npos);
}

TEST(ArenaLayout, WhatDoesNotFitTheWireIsRefusedWithItsName) {
  const ArenaLayout good{.flags = {.ranks = 64, .max_chunks = 1024},
                         .half_stride_bytes = int64_t{64} << 30,
                         .user_stride_bytes = int64_t{64} << 30};
  EXPECT_EQ(refusal(good), "");
  ArenaLayout bad = good;
  bad.flags.ranks = 4097;
  EXPECT_NE(refusal(bad).find("world size"), std::string::npos);
  bad = good;
  bad.flags.max_chunks = 1 << 14;
  EXPECT_NE(refusal(bad).find("TILEWIRE_MAX_CHUNKS_PER_SOURCE"), std::string::npos);
  // What it says to lower it to will do, and no more would.
  for (const int32_t ranks : {4, 171, 300, 1024}) {
    bad = good;
    bad.flags = {.ranks = ranks, .max_chunks = 1 << 20};
    const std::string advice = "MAX_CHUNKS_PER_SOURCE to ", text = refusal(bad);
    const size_t at = text.find(advice);
    ASSERT_NE(at, std::string::npos) << text;
    const int32_t most = std::stoi(text.substr(at + advice.size()));
    bad.flags.max_chunks = most;
    EXPECT_EQ(refusal(bad), "") << ranks;
    bad.flags.max_chunks = most + 1;
    EXPECT_NE(refusal(bad), "") << ranks;
  }
  bad = good;
  bad.half_stride_bytes = int64_t{1} << 38;
  EXPECT_NE(refusal(bad).find("lower TILEWIRE_ARENA_RESERVE_BYTES to 128GiB"), std::string::npos) << refusal(bad);
}

TEST(WordText, NamesEveryKindOfWord) {
  const FlagLayout flags{.ranks = 4, .max_chunks = 8};
  const char* const names[kWordFamilies] = {"shard_arrived", nullptr, nullptr, nullptr};
  EXPECT_EQ(word_text(flags, flags.begun(Rank{2}), names), "begun of rank 2 (word 2)");
  EXPECT_EQ(word_text(flags, flags.done(Rank{3}), names), "done of rank 3 (word 7)");
  EXPECT_EQ(word_text(flags, flags.chunk(0, Rank{1}, Chunk{5}), names), "shard_arrived of chunk 5 of rank 1 (word 21)");
  EXPECT_NE(word_text(flags, flags.chunk(2, Rank{1}, Chunk{5}), names).find("family 2"), std::string::npos);
  EXPECT_EQ(word_text(flags, FlagLayout::sent(), names), "sent of the own proxy");
  EXPECT_NE(word_text(flags, 999999, names).find("does not exist"), std::string::npos);
}

// Published test values of the 64-bit FNV-1a.
TEST(Hash, GivesThePublishedValues) {
  EXPECT_EQ(hash64(""), 0xcbf29ce484222325u);
  EXPECT_EQ(hash64("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(hash64("foobar"), 0x85944171f73967e8u);
}

}  // namespace
}  // namespace tilewire

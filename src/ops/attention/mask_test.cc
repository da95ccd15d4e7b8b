// Who sees what, and where rows are.
#include "ops/attention/mask.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "base/error_of.h"
#include "ops/attention/random_calls.h"

namespace tilewire::attention {
namespace {

TEST(Positions, AZigzagIsCutByCeilingAndItsLastBlocksMayBeShortOrEmpty) {
  const std::vector<Positions> long_one = zigzag_positions(2999, 4);
  EXPECT_EQ(long_one[0], (Positions{{0, 375}, {2625, 374}}));
  EXPECT_EQ(long_one[3], (Positions{{1125, 750}})) << "its two blocks touch";
  EXPECT_EQ(zigzag_rows(2999, 4), (std::vector<int64_t>{749, 750, 750, 750}));
  EXPECT_EQ(zigzag_rows(7, 4), (std::vector<int64_t>{1, 2, 2, 2}));
  EXPECT_EQ(zigzag_rows(1, 4), (std::vector<int64_t>{1, 0, 0, 0}));
  EXPECT_EQ(zigzag_rows(0, 3), (std::vector<int64_t>{0, 0, 0}));
}

TEST(Positions, EveryPlacementHoldsEachPositionOnce) {
  for (const int32_t ranks : {1, 2, 3, 4, 8}) {
    for (const int64_t total : {0, 1, 7, 64, 100, 2999}) {
      std::vector<int64_t> seen;
      for (const Positions& p : zigzag_positions(total, ranks)) {
        const std::vector<int64_t> own = expanded(p);
        EXPECT_EQ(static_cast<int64_t>(own.size()), rows_of(p));
        EXPECT_EQ(runs_of(own), p);
        EXPECT_EQ(unpacked(packed(p)), p);
        seen.insert(seen.end(), own.begin(), own.end());
      }
      std::sort(seen.begin(), seen.end());
      std::vector<int64_t> all(static_cast<size_t>(total));
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(seen, all) << total << " rows on " << ranks << " ranks";
    }
  }
}

TEST(Positions, WhatAnotherRankCannotHaveSentIsRefused) {
  EXPECT_NE(error_of([] { unpacked(std::vector<int64_t>{1, 2, 3}); }), "");
  EXPECT_NE(error_of([] { unpacked(std::vector<int64_t>{-1, 2}); }), "");
  EXPECT_NE(error_of([] { unpacked(std::vector<int64_t>{1, 0}); }), "");
}

// The rule in words: a query sees the keys of its own document, where causal those up to its own place counted from the
// document's end.
bool sees(const MaskRule& mask, int64_t query, int64_t key) {
  if (mask.query_begins.empty()) return !mask.is_causal || key <= query + mask.causal_offset;
  for (size_t d = 0; d + 1 < mask.query_begins.size(); ++d) {
    const int64_t q0 = mask.query_begins[d], q1 = mask.query_begins[d + 1];
    const int64_t k0 = mask.key_begins[d], k1 = mask.key_begins[d + 1];
    if (query < q0 || query >= q1 || key < k0 || key >= k1) continue;
    return !mask.is_causal || q1 - query <= k1 - key;
  }
  return false;
}

std::vector<MaskRule> rules() {
  std::vector<MaskRule> rules;
  for (const bool is_causal : {false, true}) {
    rules.push_back({.is_causal = is_causal});
    rules.push_back({.is_causal = is_causal, .causal_offset = 9});
    rules.push_back({.is_causal = is_causal, .causal_offset = -11});
    rules.push_back({.is_causal = is_causal, .query_begins = {0, 5, 5, 20, 33}, .key_begins = {0, 5, 5, 20, 33}});
    rules.push_back({.is_causal = is_causal, .query_begins = {0, 5, 9, 9, 33}, .key_begins = {0, 9, 9, 14, 20}});
    rules.push_back({.is_causal = is_causal, .query_begins = {0, 0}, .key_begins = {0, 0}});
    rules.push_back({.is_causal = is_causal, .query_begins = {0}, .key_begins = {0}});
  }
  return rules;
}

TEST(Mask, ASpanIsWhatTheRuleInWordsSays) {
  for (const MaskRule& mask : rules()) {
    for (int64_t query = 0; query < 40; ++query) {
      const KeySpan span = mask.span_of(query);
      for (int64_t key = 0; key < 40; ++key) {
        ASSERT_EQ(span.holds(key), sees(mask, query, key)) << "query " << query << " key " << key;
      }
    }
  }
}

TEST(Mask, StretchesHoldWhatSomeRowSeesAndNothingElse) {
  Dice dice(3);
  for (const MaskRule& mask : rules()) {
    for (int round = 0; round < 20; ++round) {
      const Positions queries = shuffled_positions({dice.below(40), 40}, dice)[0];
      const std::vector<KeySpan> seen = mask.seen_by(queries);
      std::set<int64_t> keys;
      for (const int64_t q : expanded(queries)) {
        for (int64_t key = 0; key < 40; ++key) {
          if (sees(mask, q, key)) keys.insert(key);
        }
      }
      for (int64_t key = 0; key < 40; ++key) {
        ASSERT_EQ(is_seen(seen, {key, 1}), keys.count(key) == 1) << key;
        const bool any_of_five = keys.lower_bound(key) != keys.lower_bound(key + 5);
        ASSERT_EQ(is_seen(seen, {key, 5}), any_of_five) << key;
      }
    }
  }
}

TEST(Mask, BoundsOfRowsAndKeysAreNeverWrong) {
  Dice dice(5);
  for (const MaskRule& mask : rules()) {
    for (int round = 0; round < 50; ++round) {
      SpanBounds rows;
      KeyBounds keys;
      std::vector<int64_t> queries, positions;
      for (int i = 0; i < 4; ++i) {
        queries.push_back(dice.below(40));
        positions.push_back(dice.below(40));
        rows.add(mask.span_of(queries.back()));
        keys.add(positions.back());
      }
      bool any = false, all = true;
      for (const int64_t q : queries) {
        for (const int64_t k : positions) {
          any = any || sees(mask, q, k);
          all = all && sees(mask, q, k);
        }
      }
      EXPECT_TRUE(!any || may_meet(rows, keys));
      EXPECT_TRUE(all || !all_meet(rows, keys));
    }
  }
}

// ---- problems

Problem good() {
  return {.rows = {10, 20},
          .kv_rows = {10, 20},
          .batch = 2,
          .q_heads = 8,
          .kv_heads = 2,
          .head_dim = 128,
          .dtype = DataType::bf16};
}

TEST(Problem, WhatCannotBeIsNamedWithTheRule) {
  good().validate();
  const auto refusal = [](const auto& change) {
    Problem p = good();
    change(p);
    return error_of([&] { p.validate(); });
  };
  const auto expect = [&](const std::string& text, const auto& change) {
    const std::string said = refusal(change);
    EXPECT_NE(said.find(text), std::string::npos) << said << "\nwithout: " << text;
  };
  expect("must be 64 or 128", [](Problem& p) { p.head_dim = 96; });
  expect("must be bf16 or fp16", [](Problem& p) { p.dtype = DataType::fp32; });
  expect("must be a multiple", [](Problem& p) { p.kv_heads = 3; });
  expect("rows[1] = -1", [](Problem& p) { p.rows[1] = -1; });
  expect("kv_rows[0] = -1", [](Problem& p) { p.kv_rows[0] = -1; });
  expect("rank r has blocks r and 3 - r: [14, 16]", [](Problem& p) { p.placement = Placement::zigzag; });
  expect("rank 1 has 19 positions and 20 rows", [](Problem& p) {
    p.placement = Placement::given;
    p.given = p.given_kv = {{{0, 10}}, {{10, 19}}};
  });
  expect("one list a rank", [](Problem& p) {
    p.placement = Placement::given;
    p.given = {{{0, 10}}};
  });
  expect("the first must be 0", [](Problem& p) { p.documents = p.kv_documents = {1, 30}; });
  expect("must not fall", [](Problem& p) { p.documents = p.kv_documents = {0, 20, 10}; });
  expect("must not be above all rows", [](Problem& p) { p.documents = p.kv_documents = {0, 31}; });
  expect("different numbers of documents", [](Problem& p) {
    p.documents = {0, 30};
    p.kv_documents = {0, 10, 30};
  });
}

// Plans and tables are kept by it.
TEST(Problem, AShapeHasNeitherPositionsNorDocuments) {
  Problem a = good(), b = good();
  a.placement = b.placement = Placement::given;
  a.given = a.given_kv = contiguous_positions(a.rows);
  b.given = b.given_kv = {{{20, 10}}, {{0, 20}}};
  b.documents = b.kv_documents = {0, 7, 30};
  EXPECT_FALSE(a.is_shape());
  EXPECT_EQ(a.shape(), b.shape());
  EXPECT_TRUE(a.shape().is_shape());
  EXPECT_EQ(error_of([&] { a.shape().validate(); }), "") << "positions are each call's own";
  EXPECT_EQ(a.priced(), b.priced());
  a.is_causal = b.is_causal = true;
  EXPECT_NE(a.shape(), good().shape());
  EXPECT_FALSE(a.priced().is_causal) << "any row may see any key";
}

// Otherwise ranks that disagree would run.
TEST(Problem, WhateverRanksMustAgreeOnIsInTheAgreedText) {
  const CallParts text = good().agreed();
  const auto differs = [&](const auto& change) {
    Problem p = good();
    change(p);
    EXPECT_NE(p.agreed(), text);
  };
  differs([](Problem& p) { p.rows = {20, 10}; });
  differs([](Problem& p) { p.kv_rows = {20, 10}; });
  differs([](Problem& p) { p.batch = 1; });
  differs([](Problem& p) { p.q_heads = 4; });
  differs([](Problem& p) { p.kv_heads = 4; });
  differs([](Problem& p) { p.head_dim = 64; });
  differs([](Problem& p) { p.dtype = DataType::fp16; });
  differs([](Problem& p) { p.is_causal = true; });
  differs([](Problem& p) { p.placement = Placement::zigzag; });
  differs([](Problem& p) { p.documents = p.kv_documents = {0, 30}; });
  Problem given = good();
  given.placement = Placement::given;
  given.given = given.given_kv = contiguous_positions(given.rows);
  Problem other = given;
  other.given[1] = {{11, 20}};
  EXPECT_NE(other.agreed(), given.agreed());
  other = given;
  other.given_kv[1] = {{11, 20}};
  EXPECT_NE(other.agreed(), given.agreed());
  Problem own = good();
  own.out_dtype = DataType::fp32;
  EXPECT_EQ(own.agreed(), text) << "each rank may have another";
}

}  // namespace
}  // namespace tilewire::attention

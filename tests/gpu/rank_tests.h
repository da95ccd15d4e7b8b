// The lives of a communicator that ranks of gpu_ranks_test have, for each operation of rank_ops.h.
#pragma once

#include "rank_ops.h"
#include "rank_program.h"

namespace tilewire {

constexpr const char* kWirePid = "TEST_WIRE_PID";  // the variable by which ranks know the wire process

template <class Op>
struct RankTests {
  static void life(Joined& joined);       // every shape, streams, graphs, a refusal by all, a timeline, a report
  static void next_life(Joined& joined);  // one call
  // Each of these ends with the communicator.
  static void mismatch(Joined& joined);
  static void orders(Joined& joined);
  static void refused(Joined& joined);
  static void absent(Joined& joined);  // its deadline is short
  static void killed(Joined& joined);  // the last rank
  static void wire_killed(Joined& joined);
};

extern template struct RankTests<AgGemmRankOp>;
extern template struct RankTests<GemmRsRankOp>;
extern template struct RankTests<GemmArRankOp>;
extern template struct RankTests<AttentionRankOp>;
extern template struct RankTests<MoeDispatchRankOp>;

// Calls of MoE dispatch in which one rank gets too many rows, or names an expert that is not there; and calls of growing
// sizes without a limit.
void test_dispatch_remarks(Joined& joined);

// Packed sequences of one shape, each with documents of its own: many in flight, and in graphs.
void test_packed_calls(Joined& joined);

// The link test; one whose messages are torn, and one that loses them.
void test_links(const Options& options);
void test_torn_links(const Options& options);
void test_lost_links(const Options& options);

}  // namespace tilewire

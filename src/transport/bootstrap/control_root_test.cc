#include "transport/bootstrap/control_root.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "transport/bootstrap/bootstrap_fixture.h"
#include "transport/bootstrap/call_ledger.h"

namespace tilewire {
namespace {

class ControlRootTest : public testing::Test {
 protected:
  struct Sent {
    Rank to;
    ControlRecord record;
  };

  ControlRootTest() : root_(3, [this](Rank to, const ControlRecord& record) { sent_.push_back({to, record}); }) {}

  void gather(int rank, const std::string& name, uint64_t call = 0, uint64_t hash = 0) {
    root_.on_record(Rank(rank),
                    {.type = ControlType::gather,
                     .call = call,
                     .hash = hash,
                     .sequence = 7,
                     .name = name,
                     .call_text = plain_text("call of " + std::to_string(rank)),
                     .parts = {to_bytes(std::to_string(rank))}},
                    now_);
  }
  std::vector<Sent> take(ControlType type) {
    std::vector<Sent> out;
    for (const Sent& sent : sent_) {
      if (sent.record.type == type) out.push_back(sent);
    }
    sent_.clear();
    return out;
  }
  static bool says(const Sent& sent, const std::string& part) {
    return sent.record.text.find(part) != std::string::npos;
  }

  SteadyTime now_ = SteadyTime() + 1h;
  std::vector<Sent> sent_;
  ControlRoot root_;
};

TEST_F(ControlRootTest, ResultIsByRankWhateverTheOrder) {
  for (const int rank : {2, 0, 1}) gather(rank, "plan");
  const auto results = take(ControlType::gather_result);
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[1].record.parts, (std::vector<Bytes>{to_bytes("0"), to_bytes("1"), to_bytes("2")}));
}

TEST_F(ControlRootTest, DifferentTagsAreOneAbortForAll) {
  gather(2, "plan", 4);
  gather(1, "plan", 5);
  gather(0, "plan", 5);
  const auto aborts = take(ControlType::abort);
  ASSERT_EQ(aborts.size(), 3u);
  EXPECT_TRUE(says(aborts[0], "rank 1 is in 'plan' of call 5") && says(aborts[0], "rank 2 is in 'plan' of call 4"));
}

TEST_F(ControlRootTest, OneStepOfACallWithOtherContentsIsNotSaidToBeTwoSteps) {
  root_.on_record(
      Rank(2),
      {.type = ControlType::gather, .call = 4, .hash = 1, .name = "plan", .call_text = advised("3 rows", "so")}, now_);
  root_.on_record(
      Rank(0),
      {.type = ControlType::gather, .call = 4, .hash = 2, .name = "plan", .call_text = advised("9 rows", "so")}, now_);
  const auto aborts = take(ControlType::abort);
  ASSERT_EQ(aborts.size(), 3u);
  EXPECT_EQ(aborts[1].record.kind, ErrorKind::mismatch);
  EXPECT_EQ(aborts[1].record.text, "call 4 is not the same on all ranks: rank 0: 9 rows | rank 2: 3 rows; so");
}

// What an op advises is about what ranks bring to one call of it.
TEST_F(ControlRootTest, TheAdviceOfAnOpIsForRanksInItsCallOnly) {
  const ControlRecord plan{
      .type = ControlType::gather, .call = 4, .hash = 1, .name = "plan", .call_text = advised("three", "rows")};
  const auto told = [&](ControlRecord other) {
    other.type = ControlType::gather;
    ControlRoot root(2, [this](Rank to, const ControlRecord& record) { sent_.push_back({to, record}); });
    root.on_record(Rank(0), plan, now_);
    root.on_record(Rank(1), std::move(other), now_);
    return take(ControlType::abort).at(0).record.text;
  };
  for (const ControlRecord& other : {ControlRecord{.name = "barrier"}, ControlRecord{.call = 3, .name = "plan"}}) {
    const std::string text = told(other);
    EXPECT_NE(text.find(std::string("; ") + kSameCallsAdvice), std::string::npos) << text;
    EXPECT_EQ(text.find("rows"), std::string::npos) << text;
  }
  const std::string same_call = told({.call = 4, .name = "row counts"});
  EXPECT_EQ(same_call.substr(same_call.rfind("; ")), "; rows");
}

TEST_F(ControlRootTest, NoticeGoesOnlyToRanksThatHaveNotJoinedAndOnlyWhenLate) {
  gather(1, "plan", 4);
  root_.on_tick(now_ + 1ms);
  EXPECT_TRUE(take(ControlType::step_notice).empty());
  gather(0, "plan", 4);
  ASSERT_TRUE(root_.next_tick().has_value());
  root_.on_tick(*root_.next_tick());
  const auto notices = take(ControlType::step_notice);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0].to, Rank(2));
  EXPECT_EQ(notices[0].record.rank, Rank(1));
  EXPECT_TRUE(notices[0].record.parts.empty());
}

TEST_F(ControlRootTest, WhoIsLateIsNamedOnceInTheLogSoonerThanTheDeadline) {
  std::vector<std::string> lines;
  const LogSink before = set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  for (const int late : {2, 1}) {
    gather(0, "plan", 4);
    gather(3 - late, "plan", 4);
    for (int i = 0; i < 9 && root_.next_tick(); ++i) root_.on_tick(*root_.next_tick());
    gather(late, "plan", 4);
  }
  for (const int rank : {0, 1, 2}) gather(rank, "plan", 4);
  EXPECT_FALSE(root_.next_tick()) << "all have come";
  set_log_sink(before);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("rank 2 did not come within 5 s to 'plan' of call 4: call of 0, where rank 0 waits"),
            std::string::npos)
      << lines[0];
  EXPECT_NE(lines[1].find("rank 1 did not come"), std::string::npos) << lines[1];
}

TEST_F(ControlRootTest, GatherThatWaitsForARankThatLeavesFails) {
  gather(0, "plan");
  root_.on_record(Rank(2), {.type = ControlType::goodbye, .last_ended = 9}, now_);
  gather(1, "plan");
  const auto failed = take(ControlType::gather_failed);
  ASSERT_EQ(failed.size(), 2u);
  EXPECT_TRUE(says(failed[0], "rank 2 closed") && says(failed[1], "rank 2 closed"));
}

TEST_F(ControlRootTest, WhoRefusedACallAndThenLeftIsKnownForTheRefusal) {
  root_.on_record(Rank(2), {.type = ControlType::refused, .call = 4, .text = "bad out"}, now_);
  root_.on_record(Rank(2), {.type = ControlType::goodbye}, now_);
  gather(1, "plan", 4);
  const auto of_call = take(ControlType::gather_failed);
  ASSERT_EQ(of_call.size(), 1u);
  EXPECT_EQ(of_call[0].record.kind, ErrorKind::refused);
  EXPECT_TRUE(says(of_call[0], "rank 2 refused call 4 that rank 1 is in: bad out")) << of_call[0].record.text;
  gather(1, "plan", 5);  // another call is another matter
  EXPECT_EQ(take(ControlType::gather_failed).at(0).record.kind, ErrorKind::peer_lost);
}

TEST_F(ControlRootTest, MismatchWithARankThatRefusedTheCallIsItsRefusal) {
  root_.on_record(Rank(2), {.type = ControlType::refused, .call = 4, .text = "bad out"}, now_);
  root_.on_record(Rank(1), {.type = ControlType::mismatch, .rank = Rank(2), .call = 4, .call_text = plain_text("mine")},
                  now_);
  const auto queries = take(ControlType::query);
  ASSERT_EQ(queries.size(), 1u);
  root_.on_record(
      Rank(2),
      {.type = ControlType::answer, .sequence = queries[0].record.sequence, .call_text = plain_text("refused")}, now_);
  const auto aborts = take(ControlType::abort);
  ASSERT_EQ(aborts.size(), 3u);
  EXPECT_EQ(aborts[0].record.kind, ErrorKind::refused);
  EXPECT_TRUE(says(aborts[0], "rank 2 refused call 4 that rank 1 is in: bad out")) << aborts[0].record.text;
}

TEST_F(ControlRootTest, RankThatLeavesAfterItsContributionLetsTheGatherComplete) {
  gather(2, "last");
  root_.on_record(Rank(2), {.type = ControlType::goodbye}, now_);
  gather(0, "last");
  gather(1, "last");
  EXPECT_EQ(take(ControlType::gather_result).size(), 3u);
}

TEST_F(ControlRootTest, FirstAbortWinsAndDeathAfterItIsSilent) {
  root_.on_record(Rank(1), {.type = ControlType::abort, .kind = ErrorKind::aborted, .text = "first"}, now_);
  root_.on_record(Rank(2), {.type = ControlType::abort, .kind = ErrorKind::aborted, .text = "second"}, now_);
  root_.on_lost(Rank(1), "gone");
  const auto aborts = take(ControlType::abort);
  ASSERT_EQ(aborts.size(), 3u);
  for (const auto& sent : aborts) EXPECT_EQ(sent.record.text, "first");
}

TEST_F(ControlRootTest, LossAfterAGoodbyeIsNoDeath) {
  root_.on_record(Rank(1), {.type = ControlType::goodbye}, now_);
  root_.on_lost(Rank(1), "end");
  EXPECT_TRUE(take(ControlType::abort).empty());
  EXPECT_FALSE(root_.are_others_gone());
  root_.on_lost(Rank(2), "killed");
  EXPECT_TRUE(root_.are_others_gone());
  EXPECT_TRUE(says(take(ControlType::abort).at(0), "rank 2 is lost: killed"));
}

TEST_F(ControlRootTest, ExpiredGatherListsWhoDidNotCome) {
  gather(1, "plan", 3);
  root_.on_record(
      Rank(1), {.type = ControlType::gather_expired, .text = "2 s", .call_text = {.advice = "raise the limit"}}, now_);
  const auto aborts = take(ControlType::abort);
  ASSERT_EQ(aborts.size(), 3u);
  EXPECT_TRUE(says(aborts[0], "ranks 0, 2 did not come to 'plan' of call 3") && says(aborts[0], "2 s"));
  EXPECT_TRUE(says(aborts[0], "; raise the limit"));
  EXPECT_EQ(aborts[0].record.kind, ErrorKind::deadline);
}

// A kernel counts its calls in its own way: what it has is a hash of the peer's.
TEST_F(ControlRootTest, MismatchByAHashAsksForItsTextWhateverThePeerRefused) {
  root_.on_record(Rank(2), {.type = ControlType::refused, .call = 4, .text = "bad out"}, now_);
  root_.on_record(
      Rank(1), {.type = ControlType::mismatch, .rank = Rank(2), .call = 4, .hash = 99, .call_text = plain_text("mine")},
      now_);
  const auto queries = take(ControlType::query);
  ASSERT_EQ(queries.size(), 1u);
  EXPECT_EQ(queries[0].record.hash, 99u);
  root_.on_record(
      Rank(2), {.type = ControlType::answer, .sequence = queries[0].record.sequence, .call_text = plain_text("theirs")},
      now_);
  EXPECT_TRUE(says(take(ControlType::abort).at(0), "rank 1: mine | rank 2: theirs"));
}
TEST_F(ControlRootTest, MismatchCarriesBothDescriptionsLowerRankFirst) {
  root_.on_record(
      Rank(2), {.type = ControlType::mismatch, .rank = Rank(1), .call = 8, .call_text = advised("mine", "pass rows")},
      now_);
  const auto queries = take(ControlType::query);
  ASSERT_EQ(queries.size(), 1u);
  EXPECT_EQ(queries[0].to, Rank(1));
  root_.on_record(
      Rank(2), {.type = ControlType::answer, .sequence = queries[0].record.sequence, .call_text = plain_text("forged")},
      now_);
  EXPECT_TRUE(take(ControlType::abort).empty());
  root_.on_record(
      Rank(1), {.type = ControlType::answer, .sequence = queries[0].record.sequence, .call_text = plain_text("theirs")},
      now_);
  const auto aborts = take(ControlType::abort);
  ASSERT_EQ(aborts.size(), 3u);
  EXPECT_TRUE(says(aborts[2], "call 8") && says(aborts[2], "rank 1: theirs | rank 2: mine; pass rows"))
      << aborts[2].record.text;
}

TEST_F(ControlRootTest, MismatchWithARankThatDoesNotAnswerStillEnds) {
  root_.on_record(Rank(0), {.type = ControlType::mismatch, .rank = Rank(1), .call = 8, .call_text = plain_text("mine")},
                  now_);
  root_.on_tick(now_ + 100ms);
  EXPECT_TRUE(take(ControlType::abort).empty());
  root_.on_tick(now_ + 2s);
  EXPECT_TRUE(says(take(ControlType::abort).at(0), "gives no answer"));
}

TEST_F(ControlRootTest, RefusalGoesToAllOthersUnderTheNameOfItsSender) {
  root_.on_record(Rank(1), {.type = ControlType::refused, .rank = Rank(2), .call = 5, .text = "k"}, now_);
  const auto refused = take(ControlType::refused);
  ASSERT_EQ(refused.size(), 2u);
  EXPECT_EQ(refused[0].to, Rank(0));
  EXPECT_EQ(refused[1].to, Rank(2));
  EXPECT_EQ(refused[0].record.rank, Rank(1));
}

TEST_F(ControlRootTest, RecordThatNoRankMaySendAborts) {
  root_.on_record(Rank(1), {.type = ControlType::left, .rank = Rank(2)}, now_);
  EXPECT_EQ(take(ControlType::abort).at(0).record.kind, ErrorKind::internal);
}

}  // namespace
}  // namespace tilewire

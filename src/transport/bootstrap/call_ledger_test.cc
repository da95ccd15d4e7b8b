#include "transport/bootstrap/call_ledger.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>

#include "transport/bootstrap/bootstrap_fixture.h"

namespace tilewire {
namespace {

bool has(const Verdict& verdict, ErrorKind kind, const std::vector<std::string>& parts) {
  if (!verdict || verdict->kind != kind) return false;
  for (const std::string& part : parts) {
    if (verdict->text.find(part) == std::string::npos) return false;
  }
  return true;
}

TEST(CallLedger, RefusalHeardInsideTheCallAborts) {
  CallLedger ledger(Rank(0), 2);
  EXPECT_FALSE(ledger.begin_call(3, said("mine")));
  EXPECT_FALSE(ledger.enter_call(3));
  EXPECT_TRUE(has(ledger.on_remote_refused(Rank(1), 3, "k = 7"), ErrorKind::refused, {"rank 1", "call 3", "k = 7"}));
}

TEST(CallLedger, RefusalHeardBeforeTheCallIsRememberedUntilIt) {
  CallLedger ledger(Rank(0), 2);
  EXPECT_FALSE(ledger.begin_call(2, said("mine")));
  ledger.end_call(2);
  EXPECT_FALSE(ledger.on_remote_refused(Rank(1), 3, "k = 7"));
  EXPECT_TRUE(has(ledger.begin_call(3, said("mine")), ErrorKind::refused, {"rank 1", "call 3", "k = 7"}));
}

TEST(CallLedger, RefusalOfBothIsDroppedInEitherOrder) {
  for (const bool is_own_first : {true, false}) {
    CallLedger ledger(Rank(0), 2);
    if (is_own_first) ledger.refuse_call(1, "own");
    EXPECT_FALSE(ledger.on_remote_refused(Rank(1), 1, "theirs"));
    if (!is_own_first) ledger.refuse_call(1, "own");
    EXPECT_EQ(ledger.open_refusals(), 0u);
    EXPECT_FALSE(ledger.begin_call(2, said("next")));
    EXPECT_FALSE(ledger.enter_call(2));
  }
}

TEST(CallLedger, RefusalOfSomeStaysOpenForTheRest) {
  CallLedger ledger(Rank(0), 3);
  ledger.refuse_call(1, "own");
  EXPECT_FALSE(ledger.on_remote_refused(Rank(2), 1, "theirs"));
  EXPECT_EQ(ledger.open_refusals(), 1u);
  EXPECT_FALSE(ledger.on_remote_refused(Rank(1), 1, "late"));
  EXPECT_EQ(ledger.open_refusals(), 0u);
}

TEST(CallLedger, ARefusalIsLoneUntilTheLastRankHasRefusedToo) {
  CallLedger ledger(Rank(0), 3);
  EXPECT_FALSE(ledger.on_remote_refused(Rank(1), 1, "of others is none of this rank's"));
  EXPECT_FALSE(ledger.lone_refusal());
  ledger.refuse_call(1, "own");
  ledger.refuse_call(2, "own");
  const auto lone = ledger.lone_refusal();
  ASSERT_TRUE(lone);
  EXPECT_EQ(lone->call, 1u);
  EXPECT_EQ(lone->lacking, std::vector<int32_t>{2});
  ledger.on_remote_refused(Rank(2), 1, "late");
  ASSERT_TRUE(ledger.lone_refusal());
  EXPECT_EQ(ledger.lone_refusal()->call, 2u);
  EXPECT_EQ(ledger.lone_refusal()->lacking, (std::vector<int32_t>{1, 2}));
  for (const int peer : {1, 2}) ledger.on_remote_refused(Rank(peer), 2, "late");
  EXPECT_FALSE(ledger.lone_refusal());
}

TEST(CallLedger, RefusalOfACallThisRankIsPastAborts) {
  CallLedger ledger(Rank(0), 2);
  ledger.begin_call(1, said("one"));
  ledger.end_call(1);
  EXPECT_TRUE(has(ledger.on_remote_refused(Rank(1), 1, "late"), ErrorKind::refused, {"call 1"}));
}

TEST(CallLedger, RefusedAfterBeginIsNoCallToAbort) {
  CallLedger ledger(Rank(0), 2);
  ledger.begin_call(1, said("one"));
  ledger.refuse_call(1, "own");
  EXPECT_FALSE(ledger.on_remote_refused(Rank(1), 1, "theirs"));
}

const CallStep kPlan{4, "plan", 0xabc};

TEST(CallLedger, SameStepOnBothIsFineWhenever) {
  CallLedger ledger(Rank(1), 2);
  EXPECT_FALSE(ledger.on_remote_step(Rank(0), kPlan, plain_text("theirs")));  // not there yet
  EXPECT_FALSE(ledger.begin_call(4, said("mine")));
  EXPECT_FALSE(ledger.agree(kPlan));
  EXPECT_FALSE(ledger.on_remote_step(Rank(0), kPlan, plain_text("theirs")));
  EXPECT_FALSE(ledger.enter_call(4));
  EXPECT_FALSE(ledger.on_remote_step(Rank(0), kPlan, plain_text("theirs")));  // a notice that was under way
  ledger.end_call(4);
  EXPECT_FALSE(ledger.begin_call(5, said("next")));
  EXPECT_FALSE(ledger.enter_call(5));
}

TEST(CallLedger, PeerAgreesWhileThisRankIsInsideWithout) {
  CallLedger ledger(Rank(1), 2);
  ledger.begin_call(4, said("mine"));
  ledger.enter_call(4);
  EXPECT_TRUE(has(ledger.on_remote_step(Rank(0), kPlan, plain_text("theirs")), ErrorKind::mismatch,
                  {"call 4", "rank 0: theirs", "rank 1: mine", "plan"}));
}

TEST(CallLedger, PeerAgreesBeforeThisRankEntersWithout) {
  CallLedger ledger(Rank(1), 2);
  EXPECT_FALSE(ledger.on_remote_step(Rank(0), kPlan, plain_text("theirs")));
  EXPECT_FALSE(ledger.begin_call(4, said("mine")));  // may still agree
  EXPECT_TRUE(has(ledger.enter_call(4), ErrorKind::mismatch, {"call 4", "rank 0: theirs", "rank 1: mine"}));
}

TEST(CallLedger, PeerAgreesOnACallThatThisRankHasEnded) {
  CallLedger ledger(Rank(1), 2);
  ledger.begin_call(4, said("mine"));
  ledger.enter_call(4);
  ledger.end_call(4);
  EXPECT_TRUE(has(ledger.on_remote_step(Rank(0), kPlan, plain_text("theirs")), ErrorKind::mismatch, {"rank 1: mine"}));
}

TEST(CallLedger, DifferentHashIsNamedWithBothWhicheverComesFirst) {
  const CallStep other{4, "plan", 0xdef};
  CallLedger early(Rank(1), 2);
  early.begin_call(4, said("mine"));
  early.agree(other);
  EXPECT_TRUE(has(early.on_remote_step(Rank(0), kPlan, plain_text("theirs")), ErrorKind::mismatch,
                  {"abc", "def", "theirs", "mine"}));
  CallLedger late(Rank(1), 2);
  late.on_remote_step(Rank(0), kPlan, plain_text("theirs"));
  late.begin_call(4, said("mine"));
  EXPECT_TRUE(has(late.agree(other), ErrorKind::mismatch, {"abc", "def", "theirs", "mine"}));
}

TEST(CallLedger, BothRanksWriteTheSameText) {
  CallLedger low(Rank(0), 2), high(Rank(1), 2);
  for (CallLedger* ledger : {&low, &high}) ledger->begin_call(4, said("same"));
  const CallStep other{4, "plan", 0xdef};
  low.agree(kPlan);
  high.agree(other);
  const Verdict at_low = low.on_remote_step(Rank(1), other, plain_text("same"));
  const Verdict at_high = high.on_remote_step(Rank(0), kPlan, plain_text("same"));
  ASSERT_TRUE(at_low && at_high);
  EXPECT_EQ(at_low->text, at_high->text);
}

TEST(CallLedger, AdviceEndsTheMismatchWhoeverFindsIt) {
  CallLedger hears(Rank(1), 2);
  hears.begin_call(4, said("mine"));
  hears.enter_call(4);
  EXPECT_TRUE(has(hears.on_remote_step(Rank(0), kPlan, advised("theirs", "do so")), ErrorKind::mismatch, {"; do so"}));
  CallLedger has_own(Rank(1), 2);
  has_own.begin_call(4, std::make_shared<CallText>(advised("mine", "do so")));
  has_own.agree({4, "plan", 0xdef});
  EXPECT_TRUE(has(has_own.on_remote_step(Rank(0), kPlan, plain_text("theirs")), ErrorKind::mismatch, {"; do so"}));
}

CallText toy(CallParts parts, const char* op = "toy") {
  return {.op = op, .parts = std::move(parts), .advice = "pass rows"};
}
std::string mismatch(const CallText& one, const CallText& other) {
  return mismatch_text(3, {Rank(1), one}, {Rank(0), other});
}

// Rows are told apart by the op's advice; what is wrong with K is another matter.
TEST(CallLedger, APartThatDiffersBehindTheFirstIsNamedInPlaceOfTheAdvice) {
  const CallText one = toy({{"[4, 5] rows"}, {"K = 8"}, {"bf16"}});
  EXPECT_EQ(mismatch(one, toy({{"[4, 5] rows"}, {"K = 9"}, {"bf16"}, {"wide"}})),
            "call 3 is not the same on all ranks: rank 0: toy of [4, 5] rows, K = 9, bf16, wide | rank 1: toy of "
            "[4, 5] rows, K = 8, bf16; pass rows");
  const std::string same_rows = mismatch(one, toy({{"[4, 5] rows"}, {"K = 9"}, {"fp16"}}));
  EXPECT_NE(same_rows.find("; they differ in 'K = 9' and 'K = 8', which must be"), std::string::npos) << same_rows;
  EXPECT_EQ(same_rows.find("pass rows"), std::string::npos) << same_rows;
  const std::string other_rows = mismatch(one, toy({{"[4, 6] rows"}, {"K = 9"}, {"bf16"}}));
  EXPECT_NE(other_rows.find("; pass rows"), std::string::npos) << other_rows;
  const std::string same = mismatch(one, one);
  EXPECT_EQ(same.substr(same.rfind("; ")), "; pass rows");
}

// A comma, a bracket or " of " in a text is no end of anything.
TEST(CallLedger, PartsAreFieldsWhateverTheirTextsHold) {
  const std::string text = mismatch(toy({{"5 rows of a, b"}, {"[1, 2"}}), toy({{"5 rows of a, b"}, {"[1, 3"}}));
  EXPECT_NE(text.find("they differ in '[1, 3' and '[1, 2'"), std::string::npos) << text;
}

TEST(CallLedger, APartHasItsOwnAdviceAndOtherCallsGetNone) {
  const auto end_of = [&](const CallText& one, const CallText& other) {
    const std::string text = mismatch_text(3, {Rank(0), one}, {Rank(1), other});
    return text.substr(text.find("; ") + 2);
  };
  const auto chunks = [](const char* text) { return CallPart{.text = text, .advice = "pass plan"}; };
  const std::string differ = "which must be the same on all ranks";
  EXPECT_EQ(end_of(toy({{"4 rows"}, chunks("chunk_rows = 2")}), toy({{"4 rows"}, chunks("chunk_rows = 4")})),
            "they differ in 'chunk_rows = 2' and 'chunk_rows = 4', " + differ + "; pass plan");
  // Whichever rank knows it.
  EXPECT_EQ(end_of(toy({{"4 rows"}, {"chunk_rows = 2"}}), toy({{"4 rows"}, chunks("chunk_rows = 4")})),
            "they differ in 'chunk_rows = 2' and 'chunk_rows = 4', " + differ + "; pass plan");
  EXPECT_EQ(end_of(toy({{"4 rows"}, {"K = 8"}}), toy({{"4 rows"}, {"K = 9"}})),
            "they differ in 'K = 8' and 'K = 9', " + differ);
  EXPECT_EQ(end_of(toy({{"4 rows"}, {"K = 8"}}), toy({{"5 rows"}, {"K = 8"}})), "pass rows");
  EXPECT_EQ(end_of(toy({{"4 rows"}, {"K = 8"}}), toy({{"4 rows"}, {"K = 8"}}, "game")), kSameCallsAdvice);
  EXPECT_EQ(end_of(toy({{"4 rows"}}), plain_text("is long past")), "pass rows");
}

TEST(CallLedger, ABetterTextOfACallIsWhatPeersRead) {
  CallLedger ledger(Rank(1), 2);
  const auto own = [](const char* chunks) { return toy({{"3 rows"}, {.text = chunks, .advice = "pass plan"}}); };
  ledger.begin_call(4, said("toy of 3 rows"));
  ledger.describe_call(4, std::make_shared<CallText>(own("chunk_rows = 2")));
  ledger.describe_call(5, said("of a call that is not begun"));
  EXPECT_EQ(ledger.describe(4).text(), "toy of 3 rows, chunk_rows = 2");
  ledger.agree({4, "plan", 0xdef});
  EXPECT_TRUE(has(ledger.on_remote_step(Rank(0), kPlan, own("chunk_rows = 4")), ErrorKind::mismatch,
                  {"they differ in 'chunk_rows = 4' and 'chunk_rows = 2'", "; pass plan"}));
}

TEST(CallLedger, SecondAgreementOfOneCallIsNotTakenForAMismatch) {
  const CallStep rows{4, "row counts", 0};
  CallLedger ledger(Rank(1), 2);
  ledger.begin_call(4, said("mine"));
  EXPECT_FALSE(ledger.agree(rows));
  EXPECT_FALSE(ledger.on_remote_step(Rank(0), kPlan, plain_text("theirs")));  // the peer is one step ahead
  EXPECT_FALSE(ledger.agree(kPlan));
  EXPECT_FALSE(ledger.enter_call(4));
}

TEST(CallLedger, StepOfARefusedCallIsLeftToTheRefusal) {
  CallLedger ledger(Rank(1), 2);
  ledger.refuse_call(4, "bad");
  EXPECT_FALSE(ledger.on_remote_step(Rank(0), kPlan, plain_text("theirs")));
}

TEST(CallLedger, OldStepsDoNotComeBackAfterManyCalls) {
  CallLedger ledger(Rank(1), 2);
  ledger.begin_call(4, said("mine"));
  ledger.agree(kPlan);
  ledger.on_remote_step(Rank(0), kPlan, plain_text("theirs"));
  for (uint64_t call = 5; call < 500; ++call) {
    ASSERT_FALSE(ledger.begin_call(call, said("next")));
    ASSERT_FALSE(ledger.agree({call, "row counts", 0}));
    ASSERT_FALSE(ledger.enter_call(call));
    ledger.end_call(call);
  }
}

TEST(CallLedger, GatherOutsideCallsAgainstACallIsAMismatchFromEitherSide) {
  CallLedger early(Rank(1), 2);
  early.begin_call(3, said("mine"));
  early.enter_call(3);
  EXPECT_TRUE(has(early.on_remote_outside(Rank(0), {"arena growth", 1, 2}), ErrorKind::mismatch,
                  {"rank 0", "arena growth", "rank 1", "call 3", "mine"}));
  CallLedger late(Rank(1), 2);
  EXPECT_FALSE(late.on_remote_outside(Rank(0), {"arena growth", 1, 2}));
  late.begin_call(3, said("mine"));
  EXPECT_TRUE(has(late.enter_call(3), ErrorKind::mismatch, {"arena growth"}));
}

TEST(CallLedger, GatherOutsideCallsIsFineForARankThatEndsTheSameCallLater) {
  CallLedger ledger(Rank(1), 2);
  ledger.begin_call(3, said("mine"));
  ledger.enter_call(3);
  EXPECT_FALSE(ledger.on_remote_outside(Rank(0), {"arena growth", 1, 3}));
  ledger.end_call(3);
  EXPECT_EQ(ledger.join_outside("arena growth").sequence, 1u);
  ledger.begin_call(4, said("next"));
  EXPECT_FALSE(ledger.enter_call(4));
}

TEST(CallLedger, PeerThatLeftAfterThisCallIsNoFaultButBeforeItIs) {
  CallLedger ledger(Rank(0), 2);
  ledger.begin_call(5, said("mine"));
  ledger.enter_call(5);
  EXPECT_FALSE(ledger.on_remote_left(Rank(1), 5));
  EXPECT_TRUE(has(ledger.on_remote_left(Rank(1), 4), ErrorKind::peer_lost, {"rank 1", "call 5"}));
}

TEST(CallLedger, CallBegunAfterAPeerLeftNamesIt) {
  CallLedger ledger(Rank(0), 2);
  EXPECT_FALSE(ledger.on_remote_left(Rank(1), 5));
  EXPECT_FALSE(ledger.begin_call(5, said("still shared")));
  EXPECT_TRUE(has(ledger.begin_call(6, said("mine")), ErrorKind::peer_lost, {"rank 1", "call 6"}));
}

TEST(CallLedger, DescriptionsOfOtherCallsSayWhereThisRankIs) {
  CallLedger ledger(Rank(0), 2);
  ledger.begin_call(5, said("gemm 5"));
  EXPECT_EQ(ledger.describe(5).text(), "gemm 5");
  EXPECT_NE(ledger.describe(6).text().find("last tried: 5"), std::string::npos);
  ledger.refuse_call(6, "k = 1");
  EXPECT_NE(ledger.describe(6).text().find("k = 1"), std::string::npos);
  EXPECT_EQ(ledger.describe_hash(said("gemm 5")->hash()).text(), "gemm 5");
  EXPECT_EQ(ledger.describe_hash(11).text(), "a call of hash 000000000000000b");
}

// Every mix of three ranks that refuse or enter one call, in every order of arrival: all refuse -> nothing happens;
// otherwise exactly the ranks that are in the call abort. Without a step ranks refuse before they begin; with one (as
// when row counts are exchanged) all have begun, and refusals are heard behind the step.
TEST(CallLedger, EveryMixAndOrderOfRefusalsEndsRight) {
  const CallStep counts{1, "row counts", 0};
  for (const bool has_step : {false, true}) {
    for (int mix = 0; mix < 8; ++mix) {
      for (int order = 0; order < 64; ++order) {  // before or after its own decision each rank hears each other one
        for (int self = 0; self < 3; ++self) {
          CallLedger ledger(Rank(self), 3);
          const bool is_refusing = (mix >> self & 1) != 0;
          bool has_aborted = false;
          const auto note = [&](const Verdict& verdict) { has_aborted = has_aborted || verdict.has_value(); };
          const auto hear = [&](bool is_before) {
            for (int other = 0; other < 3; ++other) {
              const bool hears_before = (order >> (2 * self + (other > self ? other - 1 : other)) & 1) != 0;
              if (other == self || hears_before != is_before || (mix >> other & 1) == 0) continue;
              note(ledger.on_remote_refused(Rank(other), 1, "no"));
            }
          };
          if (has_step) {
            note(ledger.begin_call(1, said("mine")));
            note(ledger.agree(counts));
            ledger.end_step(1);
          }
          hear(true);
          EXPECT_FALSE(has_aborted) << "mix " << mix << " order " << order << " rank " << self;
          if (is_refusing) {
            ledger.refuse_call(1, "no");
          } else {
            if (!has_step) note(ledger.begin_call(1, said("mine")));
            if (!has_aborted) note(ledger.enter_call(1));
          }
          hear(false);
          EXPECT_EQ(has_aborted, !is_refusing && mix != 0) << "mix " << mix << " order " << order << " rank " << self;
          EXPECT_EQ(ledger.open_refusals() == 0, mix == 0 || mix == 7);
        }
      }
    }
  }
}

// As on a GPU rank, where calls are entered long before they end.
TEST(CallLedger, CallsInFlightAreKnownAndThoseThatAreForgottenStayForgotten) {
  CallLedger ledger(Rank(0), 2);
  uint64_t call = 0;
  const auto enter = [&](size_t calls) {
    for (size_t i = 0; i < calls; ++i) {
      ++call;
      ledger.begin_call(call, said("call " + std::to_string(call)));
      ledger.enter_call(call);
    }
  };
  enter(kMostCallsInFlight);
  EXPECT_EQ(ledger.describe(1).text(), "call 1");
  EXPECT_TRUE(has(ledger.on_remote_left(Rank(1), 0), ErrorKind::peer_lost, {"rank 1", "call 1"}));
  enter(CallLedger::kKeptCalls);
  ledger.end_call(1);
  ledger.end_step(2);
  for (const uint64_t old : {1, 2}) {
    EXPECT_NE(ledger.describe(old).text().find("long past"), std::string::npos) << ledger.describe(old).text();
  }
  EXPECT_EQ(ledger.last_ended(), 1u);
}

TEST(CallLedger, RefusalHeardInAStepThatThePeerWillNotJoinAborts) {
  CallLedger ledger(Rank(0), 2);
  ledger.begin_call(1, said("mine"));
  EXPECT_FALSE(ledger.agree({1, "row counts", 0}));
  EXPECT_TRUE(has(ledger.on_remote_refused(Rank(1), 1, "k = 7"), ErrorKind::refused, {"rank 1", "call 1", "k = 7"}));
}

TEST(CallLedger, RefusalHeardBetweenStepsAbortsAtTheNextOne) {
  CallLedger ledger(Rank(0), 2);
  ledger.begin_call(1, said("mine"));
  ledger.agree({1, "row counts", 0});
  ledger.end_step(1);
  EXPECT_FALSE(ledger.on_remote_refused(Rank(1), 1, "k = 7"));
  EXPECT_TRUE(has(ledger.agree({1, "plan", 5}), ErrorKind::refused, {"rank 1", "call 1", "k = 7"}));
}

}  // namespace
}  // namespace tilewire

// For tests of any op's calls on thread ranks: run them and check, and what all ranks should say of a fault.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "executor/op_call.h"
#include "testing/test_support.h"
#include "testing/thread_cluster.h"

namespace tilewire {

// What a test of all ops knows about one. Each op specialises it beside its fixture (ops/<op>/call_fixture.h), with
//   using Checker               one call on one rank; see below
//   static Checker small(Rank)  of ranks 2+2; a fraction of a second, and every rank sends to another node
//   static Checker other(Rank)  the same with another size that all ranks have to agree on
//   static Checker busy(Rank)   of ranks 2+2 and of more commands than a ring of 16 entries holds
//   kText, kOtherText           what tells the texts of small() and other() apart
//   static void spoil(Arguments&)        what the own checks of a rank refuse, and kSpoilText of that refusal
//   static void alias_result(Arguments&) a result in an input's memory, and kAliasText
// where the op has counts that can be exchanged
//   static void exchange(Arguments&)     they are to be
// and where Checker has
//   Op::Arguments arguments()              with make_results(problem), into matrices of its own
//   void check() const                     every element, exactly
//   std::vector<OwnedMatrix>& results()    NaN at first
template <class Op>
struct OpTestTraits;

// Every fault that was planted on a rank (options.fault) came there; without it a test would show nothing.
inline void expect_faults_came(const std::vector<RankOutcome>& outcomes) {
  for (size_t r = 0; r < outcomes.size(); ++r) {
    if (outcomes[r].fault.empty()) continue;
    EXPECT_FALSE(outcomes[r].faults_come.empty())
        << "rank " << r << " has no network for \"" << outcomes[r].fault << '"';
    for (size_t i = 0; i < outcomes[r].faults_come.size(); ++i) {
      EXPECT_GT(outcomes[r].faults_come[i], 0u)
          << "fault " << i << " of \"" << outcomes[r].fault << "\" never came on rank " << r;
    }
  }
}

// run_thread_cluster() with faults of the network planted in the options, each of which has to come.
inline std::vector<RankOutcome> run_faulty_cluster(const std::vector<int32_t>& layout, const Options& options,
                                                   const std::function<void(Session&)>& body,
                                                   const std::function<void(Rank, Options&)>& adjust = {}) {
  std::vector<RankOutcome> outcomes = run_thread_cluster(layout, options, body, adjust);
  expect_faults_came(outcomes);
  return outcomes;
}

// Calls of one op, one after the other, on one communicator of the layout; every rank checks every element.
// `Checker(call, rank)`.
template <class Op, class Checker, class TestCall>
void run_and_check_calls(const std::vector<int32_t>& layout, const Options& options,
                         const std::vector<TestCall>& calls) {
  const auto outcomes = run_faulty_cluster(layout, options, [&](Session& session) {
    OpCalls<Op> op(session);
    for (const TestCall& call : calls) {
      Checker checker(call, session.rank().value);
      op.run(checker.arguments());
      checker.check();
    }
  });
  EXPECT_EQ(first_error(outcomes), "");
}

// The op, whose programs `adjust` may look at and change before they run. For calls on thread ranks.
template <class Op>
struct AdjustedOp : Op {
  static inline std::function<void(const CallFrame&, Call::Program&)> adjust;

  template <class Schedule, class Plan, class Operands, class Arguments>
  static Call::Program program(const Schedule& schedule, const Plan& plan, const Operands& operands,
                               const Arguments& args) {
    Call::Program program = Op::program(schedule, plan, operands, args);
    adjust(schedule.frame, program);
    return program;
  }
};

// A role of a rank.
struct RankRole {
  int32_t rank = 0;
  std::string name;
  friend auto operator<=>(const RankRole&, const RankRole&) = default;
};
// It begins that much later.
inline void delay_role(const RankRole& role, std::chrono::milliseconds by, const CallFrame& frame,
                       Call::Program& program) {
  for (Call::RoleBody& body : program.roles) {
    if (role != RankRole{frame.me.value, body.name.name}) continue;
    body.run = [run = std::move(body.run), by](RoleContext& context) {
      std::this_thread::sleep_for(by);
      run(context);
    };
  }
}

// Limits short enough for a test that waits for one.
inline Options quick_options() {
  Options o = test_options();
  o.deadline_s = 5;
  return o;
}

template <class Op>
void run_good(OpCalls<Op>& op, Rank rank, int times = 1) {
  for (int i = 0; i < times; ++i) {
    auto checker = OpTestTraits<Op>::small(rank);
    op.run(checker.arguments());
    checker.check();
  }
}

// Every rank of 2+2 makes one good call, then the one that `spoil` has changed on its rank.
template <class Op>
std::vector<RankOutcome> run_spoiled(const std::function<void(Rank, typename Op::Arguments&)>& spoil) {
  return run_thread_cluster({2, 2}, quick_options(), [&](Session& session) {
    OpCalls<Op> op(session);
    run_good(op, session.rank());
    auto bad = OpTestTraits<Op>::small(session.rank());
    auto args = bad.arguments();
    spoil(session.rank(), args);
    op.run(args);
  });
}

// A matrix of value(row, column).
template <class Value>
OwnedMatrix matrix_of(int64_t rows, int64_t cols, DataType dtype, Value&& value) {
  OwnedMatrix m(rows, cols, dtype);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) m.set(r, c, value(r, c));
  }
  return m;
}

// For matrix_of(): numbers whose sums are not exact in fp32, the same each time for a rank.
class NormalNumbers {
 public:
  explicit NormalNumbers(Rank rank) : random_(static_cast<uint32_t>(100 + rank.value)) {}
  double operator()(int64_t, int64_t) { return normal_(random_); }

 private:
  std::mt19937 random_;
  std::normal_distribution<double> normal_;
};

// On ranks of 2+2: for each dtype a call by each of the plans gives the bits of one by the first.
// `result(session, op, dtype, plan_json)`.
template <class Op, class Result>
void expect_same_bits(const Options& options, const std::vector<DataType>& dtypes,
                      const std::vector<std::string>& plans, const Result& result) {
  const auto outcomes = run_thread_cluster({2, 2}, options, [&](Session& session) {
    OpCalls<Op> op(session);
    for (const DataType dtype : dtypes) {
      const std::vector<std::byte> first = result(session, op, dtype, plans[0]);
      for (size_t i = 0; i < plans.size(); ++i) {
        ASSERT_TRUE(result(session, op, dtype, plans[i]) == first)
            << to_string(dtype) << ", call " << i << " " << plans[i];
      }
    }
  });
  EXPECT_EQ(first_error(outcomes), "");
}

// Every element is expected(row, column), as the dtype holds it. `name` says of whom and what.
template <class Expected>
void check_elements(const OwnedMatrix& m, const std::string& name, const Expected& expected) {
  for (int64_t r = 0; r < m.view().rows; ++r) {
    for (int64_t c = 0; c < m.view().cols; ++c) {
      ASSERT_EQ(m.get(r, c), rounded(expected(r, c), m.view().dtype)) << name << " row " << r << " column " << c;
    }
  }
}

inline void expect_everywhere(const std::vector<RankOutcome>& outcomes, const std::vector<std::string>& texts) {
  for (size_t r = 0; r < outcomes.size(); ++r) {
    for (const std::string& text : texts) {
      EXPECT_NE(outcomes[r].error.find(text), std::string::npos)
          << "rank " << r << " says: " << outcomes[r].error << "\nwithout: " << text;
    }
  }
}

inline void expect_everywhere(const std::vector<RankOutcome>& outcomes, ErrorKind kind,
                              const std::vector<std::string>& texts) {
  for (const RankOutcome& outcome : outcomes) EXPECT_EQ(outcome.kind, kind) << outcome.error;
  expect_everywhere(outcomes, texts);
}

inline bool is_all_nan(const OwnedMatrix& m) {
  for (int64_t r = 0; r < m.view().rows; ++r) {
    for (int64_t c = 0; c < m.view().cols; ++c) {
      if (!std::isnan(m.get(r, c))) return false;
    }
  }
  return true;
}

}  // namespace tilewire

// Communicators of two ranks in one process: what the other rank hears of one that leaves.
#include <gtest/gtest.h>
#include <tilewire/all_gather_gemm.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "api/two_communicators.h"

namespace tilewire {
namespace {

void multiply_by(const std::function<CallReport(const AllGatherGemmArguments&)>& call,
                 const std::function<void()>& in_call = {}) {
  std::vector<float> a(8, 1), b(8, 1), y;
  AllGatherGemmArguments arguments;
  arguments.a = {a.data(), 2, 4, 4, 1, DataType::fp32};
  arguments.b = {{b.data(), 4, 2, 2, 1, DataType::fp32}};
  arguments.out_dtype = DataType::fp32;
  arguments.make_results = [&](int64_t total_rows) {
    if (in_call) in_call();
    y.resize(static_cast<size_t>(total_rows) * 2);
    return AllGatherGemmResults{.out = {{y.data(), total_rows, 2, 2, 1, DataType::fp32}}, .gathered = {}};
  };
  call(arguments);
  EXPECT_EQ(y, std::vector<float>(y.size(), 4));
}

void multiply(Communicator& comm, const std::function<void()>& in_call = {}) {
  multiply_by([&](const AllGatherGemmArguments& arguments) { return all_gather_matmul(comm, arguments); }, in_call);
}

TEST(Communicator, AnExceptionOutOfItsScopeEndsTheCallsOfTheOthersByName) {
  const auto endings = run_two([](Communicator& comm) {
    multiply(comm);
    if (comm.rank() == 1) throw std::runtime_error("the user's own");
    multiply(comm);
  });
  EXPECT_EQ(endings[1].text, "the user's own");
  EXPECT_EQ(endings[0].kind, ErrorKind::aborted) << endings[0].text;
  EXPECT_NE(endings[0].text.find("rank 1 left the scope of its communicator by an exception"), std::string::npos)
      << endings[0].text;
}

TEST(Communicator, ALeaveWithoutAnExceptionIsSaidToBeAClose) {
  const auto endings = run_two([](Communicator& comm) {
    multiply(comm);
    if (comm.rank() == 1) return;
    multiply(comm);
  });
  EXPECT_EQ(endings[1].text, "");
  EXPECT_EQ(endings[0].kind, ErrorKind::peer_lost) << endings[0].text;
  EXPECT_NE(endings[0].text.find("rank 1 closed its communicator"), std::string::npos) << endings[0].text;
}

TEST(Communicator, AnExceptionThatStaysInsideItsScopeEndsNothing) {
  const auto endings = run_two([](Communicator& comm) {
    multiply(comm);
    try {
      throw std::runtime_error("caught");
    } catch (const std::exception&) {
    }
    multiply(comm);
  });
  EXPECT_EQ(endings[0].text, "");
  EXPECT_EQ(endings[1].text, "");
}

// Made and closed while another exception unwinds: that one is not why it ends.
TEST(Communicator, OneThatIsMadeDuringAnUnwindingLeavesInOrder) {
  struct Cleanup {
    std::array<Ending, 2>* endings;
    ~Cleanup() {
      *endings = run_two([](Communicator& comm) {
        multiply(comm);
        if (comm.rank() == 0) multiply(comm);
      });
    }
  };
  std::array<Ending, 2> endings;
  try {
    const Cleanup cleanup{&endings};
    throw std::runtime_error("an earlier one");
  } catch (const std::exception&) {
  }
  EXPECT_EQ(endings[0].kind, ErrorKind::peer_lost) << endings[0].text;
  EXPECT_EQ(endings[1].text, "");
}

// The front of rank 1 refuses a call whose ranks exchange row counts; rank 0 comes to the exchange before or after it.
TEST(Communicator, ARefusalOfAFrontTravelsInTheExchangeOfRowCounts) {
  const auto endings = run_two([](Communicator& comm) {
    for (const int first : {0, 1}) {
      if (comm.rank() != first) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (comm.rank() == 1) {
        comm.refuse_call("all_gather_matmul", Error(ErrorKind::invalid_argument, {.what = "a is no array"}), true);
      } else {
        try {
          multiply_by([&](AllGatherGemmArguments arguments) {
            arguments.rows.from = RowCounts::From::exchange;
            return all_gather_matmul(comm, arguments);
          });
          ADD_FAILURE() << "not refused";
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::refused) << error.what();
          EXPECT_NE(std::string(error.what()).find("a is no array"), std::string::npos) << error.what();
        }
      }
      multiply(comm);
    }
  });
  for (const Ending& ending : endings) EXPECT_EQ(ending.text, "");
}

// Roles append to the events while a call is in flight: who asks for them waits for its end.
TEST(Communicator, TraceEventsWaitForTheCallInFlight) {
  const auto endings = run_two([](Communicator& comm) {
    comm.start_trace();
    std::thread reader;
    std::atomic<bool> is_read{false};
    multiply(comm, [&] {
      reader = std::thread([&] {
        EXPECT_FALSE(comm.trace_events().empty());
        is_read = true;
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      EXPECT_FALSE(is_read);
    });
    reader.join();
  });
  for (const Ending& ending : endings) EXPECT_EQ(ending.text, "");
}

TEST(Communicator, TraceEventsMayBeReadBesideCalls) {
  const auto endings = run_two([](Communicator& comm) {
    comm.start_trace();
    std::atomic<bool> is_done{false};
    std::thread reader([&] {
      size_t seen = 0;
      while (!is_done) {
        const size_t now = comm.trace_events().size();
        EXPECT_GE(now, seen);
        EXPECT_EQ(comm.trace_dropped(), 0);
        seen = now;
      }
    });
    for (int i = 0; i < 40; ++i) multiply(comm);
    is_done = true;
    reader.join();
  });
  for (const Ending& ending : endings) EXPECT_EQ(ending.text, "");
}

// What a file says of the events that had no room.
int64_t dropped_of(const std::string& path) {
  std::ifstream in(path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::string key = "\"dropped\":";
  const size_t at = text.find(key);
  return at == std::string::npos ? -1 : std::stoll(text.substr(at + key.size()));
}

// With room for two events, so that memory for a third would show.
TEST(Communicator, ATraceKeepsOneRecordingAndCountsWhatItHadNoRoomFor) {
  const auto endings = run_two(
      [](Communicator& comm) {
        const std::string path = testing::TempDir() + "dropped_" + std::to_string(comm.rank()) + ".json";
        comm.start_trace();
        multiply(comm);
        const int64_t dropped = comm.trace_dropped();
        EXPECT_GT(dropped, 0);
        EXPECT_EQ(comm.trace_events().size(), 2u);
        comm.write_trace(path);
        EXPECT_EQ(dropped_of(path), dropped);
        comm.stop_trace();
        multiply(comm);  // is not recorded
        EXPECT_EQ(comm.trace_dropped(), dropped);
        EXPECT_EQ(comm.trace_events().size(), 2u);
        comm.start_trace();  // in the place of the first one
        EXPECT_TRUE(comm.trace_events().empty());
        EXPECT_EQ(comm.trace_event_count(), 2);
        EXPECT_EQ(comm.trace_dropped(), dropped);
        multiply(comm);
        comm.start_trace();  // one is under way
        multiply(comm);
        EXPECT_EQ(comm.trace_dropped(), 3 * dropped + 2);
        comm.stop_trace();
        EXPECT_EQ(comm.trace_events().size(), 2u);
        EXPECT_EQ(comm.trace_event_count(), 4);
        EXPECT_EQ(comm.trace_events(3).size(), 1u);
        EXPECT_TRUE(comm.trace_events(4).empty());
        comm.write_trace(path);
        EXPECT_EQ(dropped_of(path), comm.trace_dropped() - dropped);
        std::remove(path.c_str());
      },
      [](Options& options) { options.trace_events = 2; });
  for (const Ending& ending : endings) EXPECT_EQ(ending.text, "");
}

TEST(Communicator, AHandleOutlivesTheMoveOfItsCommunicator) {
  const auto endings = run_two([](Communicator& comm) {
    AllGatherGemm::Shape shape;
    shape.rows = {2, 2};
    shape.k = 4;
    shape.cols = {2};
    shape.dtype = shape.out_dtype = DataType::fp32;
    const AllGatherGemm handle(comm, shape);
    std::optional<Communicator> moved(std::move(comm));
    multiply_by([&](const AllGatherGemmArguments& arguments) { return handle(arguments); });
    comm = std::move(*moved);
    moved.reset();
    multiply_by([&](const AllGatherGemmArguments& arguments) { return handle(arguments); });
  });
  for (const Ending& ending : endings) EXPECT_EQ(ending.text, "");
}

// Rank 1 makes a call that its own checks refuse, as `text` says, and stays until rank 0 has heard of that.
void expect_refused_by_rank_1(const std::function<void(Communicator&)>& call, const std::string& text) {
  std::atomic<bool> has_rank_0_ended{false};
  const auto endings = run_two([&](Communicator& comm) {
    try {
      comm.rank() == 0 ? multiply(comm) : call(comm);
    } catch (const Error&) {
      if (comm.rank() == 0) has_rank_0_ended = true;
      while (!has_rank_0_ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      throw;
    }
  });
  EXPECT_EQ(endings[1].kind, ErrorKind::invalid_argument) << endings[1].text;
  EXPECT_EQ(endings[0].kind, ErrorKind::refused) << endings[0].text;
  for (const Ending& ending : endings) EXPECT_NE(ending.text.find(text), std::string::npos) << ending.text;
}

TEST(Communicator, ACallOutOfWhatACallAsksForIsRefusedAtOnceAndNotWaitedFor) {
  expect_refused_by_rank_1([](Communicator& comm) { multiply(comm, [&] { multiply(comm); }); },
                           "a call of this thread is still in flight");
}

TEST(Communicator, ACallWithoutMemoryForItsResultsIsRefusedByName) {
  const auto call = [](Communicator& comm) {
    multiply_by([&](AllGatherGemmArguments arguments) {
      arguments.make_results = nullptr;
      return all_gather_matmul(comm, arguments);
    });
  };
  expect_refused_by_rank_1(call, "make_results is an empty function");
}

TEST(Communicator, ACloseOutOfWhatACallAsksForEndsTheCallOnAllRanks) {
  const auto endings = run_two([](Communicator& comm) {
    try {
      multiply(comm, [&] {
        if (comm.rank() == 1) comm.close();
      });
    } catch (...) {
      EXPECT_FALSE(comm.is_closed());
      comm.close();
      EXPECT_TRUE(comm.is_closed());
      throw;
    }
  });
  for (const Ending& ending : endings) {
    EXPECT_EQ(ending.kind, ErrorKind::aborted) << ending.text;
    EXPECT_NE(ending.text.find("rank 1 closed its communicator inside a call"), std::string::npos) << ending.text;
  }
}

TEST(Communicator, OneThatWasMovedFromIsClosed) {
  const auto endings = run_two([](Communicator& comm) {
    Communicator other(std::move(comm));
    EXPECT_TRUE(comm.is_closed());
    comm.close();
    try {
      comm.rank();
      ADD_FAILURE() << "it still has a rank";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::closed) << error.what();
    }
    multiply(other);
  });
  for (const Ending& ending : endings) EXPECT_EQ(ending.text, "");
}

}  // namespace
}  // namespace tilewire

// GPU memory is registered by dma-buf, else by the peer-memory module, else not at all and with both reasons. What a GPU
// does with it is not tested here, nor anywhere yet.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <tilewire/error.h>

#include "transport/error_text.h"
#include "transport/manual_transport.h"
#include "transport/proxy_engine.h"
#include "transport/verbs/fake_device.h"
#include "transport/verbs/memory.h"

namespace tilewire {
namespace {

using namespace verbs;

// A GPU that is none: it notes what is asked for.
class NotedAccess final : public NicAccess {
 public:
  std::string obstacle() const override { return ""; }
  bool needs_flush() const override { return has_no_order; }
  void flush() const override { ++flushes; }
  UniqueFd dma_buf(ArenaRange range) const override {
    if (is_closed) throw Error(ErrorKind::closed, {.what = "the arena is closed"});
    if (!has_dma_buf) throw Error(ErrorKind::unavailable, {.what = "the GPU has no dma-buf"});
    asked.push_back(range);
    return UniqueFd(memfd_create("dma-buf", MFD_CLOEXEC));
  }

  bool has_dma_buf = true;
  bool is_closed = false;
  bool has_no_order = false;
  mutable int flushes = 0;
  mutable std::vector<ArenaRange> asked;
};

struct Ways {
  bool gpu = true;      // makes dma-bufs
  bool library = true;  // knows them
  bool device = true;   // takes them
  bool module = true;   // takes addresses of GPU memory
};

constexpr uint64_t kBase = uint64_t{0x7f} << 40;  // of the arena, on the GPU: nobody touches it

Mr register_piece(const Verbs& verbs, const NotedAccess& access, uint64_t offset, uint64_t bytes) {
  return register_memory(
      verbs, nullptr,
      {.begin = reinterpret_cast<std::byte*>(kBase + offset), .bytes = bytes, .gpu = &access, .offset = offset},
      "rank 0");
}

// One registration of a page where those ways are there.
struct Tried {
  explicit Tried(const Ways& ways) {
    FakeDevice device;
    NotedAccess access;
    access.has_dma_buf = ways.gpu;
    if (!ways.device) device.refusals.push_back({"reg_dmabuf", 0, EOPNOTSUPP});
    if (!ways.module) device.refusals.push_back({"reg_mr", 0, EFAULT});
    Verbs table = device.table();
    if (!ways.library) table.reg_dmabuf = nullptr;
    try {
      const Mr mr = register_piece(table, access, 0, 4096);
      is_registered = static_cast<bool>(mr);
    } catch (const Error& e) {
      error = e.what();
    }
    dma_bufs = device.dma_bufs.size();
    held = device.held;
  }
  bool is_registered = false;
  std::string error;
  size_t dma_bufs = 0;
  int held = 0;
};

class GpuRegistration : public ::testing::Test {
 protected:
  Mr registered(uint64_t offset, uint64_t bytes) { return register_piece(table_, access_, offset, bytes); }

  FakeDevice device_;
  Verbs table_ = device_.table();
  NotedAccess access_;
};

TEST_F(GpuRegistration, ADmaBufIsOfWholePagesAndItsRegistrationOfTheBytes) {
  struct Case {
    uint64_t offset, bytes, page_offset, page_bytes;
  };
  constexpr uint64_t kMiB = 1 << 20;
  for (const Case& c :
       {Case{0, 4096, 0, 4096}, Case{2 * kMiB, 2 * kMiB - 1, 2 * kMiB, 2 * kMiB}, Case{4096, 3 * kMiB, 4096, 3 * kMiB},
        Case{0, 5000 * kMiB, 0, 5000 * kMiB}, Case{6000 * kMiB + 100, 5000, 6000 * kMiB, 8192}}) {
    const Mr mr = registered(c.offset, c.bytes);
    ASSERT_TRUE(mr);
    const ArenaRange expected{static_cast<int64_t>(c.page_offset), static_cast<int64_t>(c.page_bytes)};
    EXPECT_EQ(access_.asked.back(), expected) << c.bytes << " bytes";
    EXPECT_EQ(device_.dma_bufs.back().offset, c.offset - c.page_offset);
    EXPECT_EQ(device_.dma_bufs.back().bytes, c.bytes);
    EXPECT_EQ(device_.dma_bufs.back().io_address, kBase + c.offset) << "peers say addresses of the arena";
  }
}

TEST(GpuRegistrationPages, AreThoseOfTheHostWhateverTheirSize) {
  EXPECT_EQ(whole_pages(5000, 100, 4096), (ArenaRange{4096, 4096}));
  EXPECT_EQ(whole_pages(5000, 100, 65536), (ArenaRange{0, 65536}));
  EXPECT_EQ(whole_pages(65535, 2, 65536), (ArenaRange{0, 131072}));
}

TEST(GpuRegistrationWays, TheModuleIsTriedWhereAnyPartOfTheDmaBufIsLackingAndNotBefore) {
  for (const Ways& ways : {Ways{.gpu = false}, Ways{.library = false}, Ways{.device = false}}) {
    const Tried tried(ways);
    EXPECT_TRUE(tried.is_registered) << tried.error;
    EXPECT_EQ(tried.dma_bufs, 0u);
  }
  const Tried both({});
  EXPECT_EQ(both.dma_bufs, 1u);
  EXPECT_TRUE(Tried({.module = false}).is_registered);
}

TEST(GpuRegistrationWays, WithoutAnyWayBothReasonsAreSaidAndNothingIsHeld) {
  struct Case {
    Ways ways;
    const char* reason;
  };
  for (const Case& c : {Case{{.gpu = false, .module = false}, "by dma-buf: the GPU has no dma-buf"},
                        Case{{.library = false, .module = false}, "no function ibv_reg_dmabuf_mr"},
                        Case{{.device = false, .module = false}, "ibv_reg_dmabuf_mr: Operation not supported (95)"}}) {
    const Tried tried(c.ways);
    EXPECT_FALSE(tried.is_registered);
    EXPECT_NE(tried.error.find(c.reason), std::string::npos) << tried.error;
    EXPECT_NE(tried.error.find("by the peer-memory module: Bad address (14)"), std::string::npos) << tried.error;
    EXPECT_NE(tried.error.find("4096 bytes"), std::string::npos) << tried.error;
    EXPECT_NE(tried.error.find("nvidia-peermem"), std::string::npos) << tried.error;
    EXPECT_EQ(tried.held, 0);
  }
}

TEST_F(GpuRegistration, AnErrorThatIsNoLackIsNotHeldForOne) {
  access_.is_closed = true;
  EXPECT_EQ(error_of([&] { registered(0, 4096); }).kind(), ErrorKind::closed);
}

// Notes how often was flushed before each arrival.
class NotingSink final : public ArrivalSink {
 public:
  explicit NotingSink(const NotedAccess& access) : access_(access) {}
  bool deliver(const Arrival&) override {
    flushes_before.push_back(access_.flushes);
    return true;
  }
  std::vector<int> flushes_before;

 private:
  const NotedAccess& access_;
};

// Of six arrivals in one look and three in the next, with completions between the looks.
std::vector<int> flushes_before_arrivals(NotedAccess& access) {
  NotingSink sink(access);
  const ArenaLayout layout{.flags = {.ranks = 2, .max_chunks = 16}, .half_stride_bytes = 1 << 16};
  std::vector<std::byte> arena(static_cast<size_t>(layout.total_bytes()));
  ManualTransport transport(Caps{.name = "counted", .write_with_immediate = true, .max_outstanding = 64});
  CommandRing ring(256);
  CommandProducer producer(ring.memory());
  CommittedBytes committed;
  ProxyCounters counters(1);
  ProxyEngine engine({.rank = Rank{0},
                      .layout = layout,
                      .control_page = arena.data(),
                      .peers = {Rank{1}},
                      .rings = {ring.memory()},
                      .arrivals = &sink,
                      .gpu_memory = &access},
                     transport, committed, counters);
  const auto arrive = [&](int count) {
    for (int i = 0; i < count; ++i) transport.arrive(Rank{1}, pack(Immediate{9, 1}));
    engine.step();
  };
  arrive(6);
  EXPECT_TRUE(producer.try_post({.kind = CommandKind::signal, .peer = Rank{1}, .word = 9}));
  engine.step();
  transport.complete(0);
  engine.step();
  arrive(3);
  return sink.flushes_before;
}

TEST(GpuArrivals, WhatCardsWroteIsFlushedOnceALookBeforeItsArrivalsAreTold) {
  NotedAccess access;
  access.has_no_order = true;
  EXPECT_EQ(flushes_before_arrivals(access), (std::vector<int>{1, 1, 1, 1, 1, 1, 2, 2, 2}));
}

TEST(GpuArrivals, AGpuThatOrdersThemIsNotFlushed) {
  NotedAccess access;
  EXPECT_EQ(flushes_before_arrivals(access), std::vector<int>(9, 0));
}

}  // namespace
}  // namespace tilewire

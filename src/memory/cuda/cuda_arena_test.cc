// What GPU arenas and pinned memory do when the driver refuses, over the fake driver. What they share with other arenas
// is in arena_test.cc.
#include "memory/cuda/cuda_arena.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <tilewire/error.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <thread>

#include "memory/arena_kinds.h"
#include "memory/cuda/pinned_memory.h"
#include "memory/nic_access.h"

namespace tilewire {
namespace {

constexpr int64_t kPage = int64_t{2} << 20;
constexpr int64_t kMostCalls = 200;  // of the driver, in what a test tries: it ends also when nothing works any more

ArenaConfig config_of(int32_t rank, int64_t page_bytes = kPage) {
  return {.rank = Rank{rank},
          .layout = {.flags = {.ranks = 2, .max_chunks = 4},
                     .half_stride_bytes = 8 * page_bytes,
                     .user_stride_bytes = 8 * page_bytes},
          .half_bytes = page_bytes,
          .user_bytes = page_bytes};
}

void map_all(Arena& arena, const Arena& peer) {
  for (const ArenaExport& e : peer.exports()) {
    arena.map_peer(peer.rank(), e.range, UniqueFd(fcntl(e.fd, F_DUPFD_CLOEXEC, 0)));
  }
}

int64_t open_descriptors() {
  const std::filesystem::directory_iterator folder("/proc/self/fd");
  return std::distance(begin(folder), end(folder));
}

// The error of f, whose text has all `parts`.
ErrorKind kind_of(const std::function<void()>& f, const std::vector<std::string>& parts = {}) {
  try {
    f();
  } catch (const Error& e) {
    for (const std::string& part : parts) EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    return e.kind();
  }
  ADD_FAILURE() << "no error";
  return ErrorKind::internal;
}

class CudaArenaTest : public testing::Test {
 protected:
  void SetUp() override { FakeGpu::start(); }
  void TearDown() override { EXPECT_EQ(fake_gpu_leftovers(), ""); }
};

TEST_F(CudaArenaTest, AnyDriverCallThatFailsLeavesNothing) {
  constexpr int64_t kSmallPage = 64 << 10;
  int64_t failures = 0;
  for (int64_t n = 1; n < kMostCalls; ++n) {
    FakeGpu::start({.page_bytes = kSmallPage});
    const int64_t descriptors = open_descriptors();
    bool has_failed = false;
    {
      std::unique_ptr<CudaArena> a;
      std::unique_ptr<CudaArena> b;
      FakeGpu::fail_call(n);
      try {
        a = make_fake_cuda_arena(config_of(0, kSmallPage));
        b = make_fake_cuda_arena(config_of(1, kSmallPage), 1);
        map_all(*a, *b);
        a->grow(3 * kSmallPage, 2 * kSmallPage);
        static_cast<void>(a->dma_buf({0, kSmallPage}));
      } catch (const Error& e) {
        has_failed = true;
        EXPECT_EQ(e.kind(), ErrorKind::resource) << e.what();
        EXPECT_NE(std::string(e.what()).find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos) << e.what();
        EXPECT_NE(std::string(e.what()).find(FakeGpu::failed()), std::string::npos) << e.what();
      }
      EXPECT_EQ(has_failed, !FakeGpu::failed().empty()) << "the failure of " << FakeGpu::failed() << " was not told";
      FakeGpu::fail_call(0);
    }
    EXPECT_EQ(fake_gpu_leftovers(), "") << "call " << n;
    EXPECT_EQ(open_descriptors(), descriptors) << "call " << n;
    if (!has_failed) break;
    ++failures;
  }
  EXPECT_GT(failures, 60) << "the test has not come far";
}

TEST_F(CudaArenaTest, GrowthThatFailsAnywhereLeavesTheArenaAsItWas) {
  const auto arena = make_fake_cuda_arena(config_of(0));
  const std::string live = FakeGpu::live_text();
  const int64_t descriptors = open_descriptors();
  const std::vector<ArenaExport> exports(arena->exports().begin(), arena->exports().end());
  int64_t n = 1;
  for (; n < kMostCalls; ++n) {
    FakeGpu::fail_call(n);
    try {
      arena->grow(3 * kPage, 2 * kPage);
      break;
    } catch (const Error&) {
      EXPECT_EQ(FakeGpu::live_text(), live) << FakeGpu::failed();
      EXPECT_EQ(open_descriptors(), descriptors) << FakeGpu::failed();
      EXPECT_EQ(arena->half_bytes(), kPage);
      EXPECT_EQ(arena->user_bytes(), kPage);
      EXPECT_EQ(arena->ranges().size(), 4u);
      ASSERT_EQ(arena->exports().size(), exports.size()) << FakeGpu::failed();
      for (size_t i = 0; i < exports.size(); ++i) {
        EXPECT_EQ(arena->exports()[i].range, exports[i].range);
        EXPECT_EQ(arena->exports()[i].fd, exports[i].fd);
      }
    }
  }
  EXPECT_GT(n, 15);
  FakeGpu::fail_call(0);
  EXPECT_EQ(arena->exports().size(), 7u);
  EXPECT_EQ(arena->base()[arena->layout().half_offset(1) + 3 * kPage - 1], std::byte{0});
}

TEST_F(CudaArenaTest, APeerThatCannotBeMappedLeavesTheArenaAsItWas) {
  const auto a = make_fake_cuda_arena(config_of(0));
  const auto b = make_fake_cuda_arena(config_of(1), 1);
  const std::string live = FakeGpu::live_text();
  const auto map_first = [&] {
    a->map_peer(Rank{1}, b->exports()[0].range, UniqueFd(fcntl(b->exports()[0].fd, F_DUPFD_CLOEXEC, 0)));
  };
  const int64_t descriptors = open_descriptors();
  for (int64_t n = 1; n < kMostCalls; ++n) {
    FakeGpu::fail_call(n);
    try {
      map_first();
      break;
    } catch (const Error&) {
      EXPECT_EQ(a->peer(Rank{1}), nullptr) << FakeGpu::failed();
      EXPECT_EQ(FakeGpu::live_text(), live) << FakeGpu::failed();
      EXPECT_EQ(open_descriptors(), descriptors) << FakeGpu::failed();
    }
  }
  FakeGpu::fail_call(0);
  a->peer(Rank{1})[5] = std::byte{9};
  EXPECT_EQ(b->base()[5], std::byte{9});
}

TEST_F(CudaArenaTest, APeerOnAGpuOutOfReachIsRefusedByName) {
  FakeGpu::start({.can_access_peers = false});
  const auto a = make_fake_cuda_arena(config_of(0), 0);
  const auto b = make_fake_cuda_arena(config_of(1), 1);
  EXPECT_EQ(kind_of([&] { map_all(*a, *b); }, {"device 1", "device 0", "peer access", "TILEWIRE_LAYOUT"}),
            ErrorKind::unavailable);
  EXPECT_EQ(a->peer(Rank{1}), nullptr);
}

TEST_F(CudaArenaTest, WhatIsNotThePeersMemoryIsRefused) {
  const auto a = make_fake_cuda_arena(config_of(0));
  const auto b = make_fake_cuda_arena(config_of(1));
  const auto map = [&](int64_t begin, int64_t bytes) {
    a->map_peer(Rank{1}, {begin, bytes}, UniqueFd(fcntl(b->exports()[1].fd, F_DUPFD_CLOEXEC, 0)));
  };
  const int64_t total = a->layout().total_bytes();
  EXPECT_EQ(kind_of([&] { map(kPage, 2 * kPage); }, {"rank 1", "cuMemMap", "4194304"}), ErrorKind::mismatch)
      << "more than there is";
  EXPECT_EQ(kind_of([&] { map(kPage, 0); }), ErrorKind::mismatch);
  EXPECT_EQ(kind_of([&] { map(kPage / 2, kPage); }, {"whole pages"}), ErrorKind::mismatch);
  EXPECT_EQ(kind_of([&] { map(-kPage, kPage); }), ErrorKind::mismatch);
  EXPECT_EQ(kind_of([&] { map(total, kPage); }), ErrorKind::mismatch);
  EXPECT_EQ(kind_of([&] { map(kPage, std::numeric_limits<int64_t>::max() - kPage + 1); }), ErrorKind::mismatch);
  EXPECT_EQ(kind_of([&] {
              a->map_peer(Rank{1}, {0, kPage}, UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC)));
            }),
            ErrorKind::mismatch);
  EXPECT_EQ(kind_of([&] { a->map_peer(Rank{1}, {0, kPage}, UniqueFd()); }), ErrorKind::mismatch);
  EXPECT_EQ(a->peer(Rank{1}), nullptr);
  map(kPage, kPage);
  EXPECT_EQ(kind_of([&] { map(kPage, kPage); }, {"mapped already"}), ErrorKind::mismatch);
}

TEST_F(CudaArenaTest, GrowthInStepsIsExportedInSteps) {
  const auto a = make_fake_cuda_arena(config_of(0));
  const auto b = make_fake_cuda_arena(config_of(1));
  map_all(*a, *b);
  for (int64_t pages = 2; pages <= 8; ++pages) {
    const size_t known = b->exports().size();
    b->grow(pages * kPage, pages * kPage);
    ASSERT_EQ(b->exports().size(), known + 3);
    for (size_t i = known; i < b->exports().size(); ++i) {
      const ArenaExport& e = b->exports()[i];
      EXPECT_EQ(e.range, b->ranges()[i]);
      a->map_peer(Rank{1}, e.range, UniqueFd(fcntl(e.fd, F_DUPFD_CLOEXEC, 0)));
      b->base()[e.range.begin_bytes] = static_cast<std::byte>(i);
    }
  }
  for (size_t i = 4; i < b->ranges().size(); ++i) {
    EXPECT_EQ(a->peer(Rank{1})[b->ranges()[i].begin_bytes], static_cast<std::byte>(i));
  }
}

TEST_F(CudaArenaTest, MemoryOfAPeerThatIsGoneStays) {
  const auto a = make_fake_cuda_arena(config_of(0));
  auto b = make_fake_cuda_arena(config_of(1), 1);
  map_all(*a, *b);
  b->base()[7] = std::byte{7};
  b.reset();
  EXPECT_EQ(a->peer(Rank{1})[7], std::byte{7});
}

TEST_F(CudaArenaTest, OutOfMemorySaysWhatThereIs) {
  FakeGpu::start({.memory_bytes = 8 * kPage});
  const auto a = make_fake_cuda_arena(config_of(0));
  const std::string left =
      std::to_string(4 * kPage) + " bytes can be had on device 0, which has " + std::to_string(8 * kPage);
  EXPECT_EQ(kind_of([&] { a->grow(7 * kPage, 0); }, {std::to_string(6 * kPage) + " more bytes asked", left}),
            ErrorKind::resource);
  a->grow(3 * kPage, 0);
  EXPECT_EQ(kind_of([&] { a->grow(0, 2 * kPage); }), ErrorKind::resource) << "all of it is taken";
}

TEST_F(CudaArenaTest, AGpuThatCannotDoItSaysWhatIsMissing) {
  FakeGpu::start({.devices = 0});
  EXPECT_EQ(kind_of([] { make_fake_cuda_arena(config_of(0)); }, {"CUDA_VISIBLE_DEVICES"}), ErrorKind::unavailable);
  FakeGpu::start({.devices = 2});
  EXPECT_EQ(kind_of([] { make_fake_cuda_arena(config_of(0), 2); }, {"CUDA device 2"}), ErrorKind::unavailable);
  FakeGpu::start({.has_descriptors = false});
  EXPECT_EQ(kind_of([] { make_fake_cuda_arena(config_of(0)); }, {"file descriptors: no"}), ErrorKind::unavailable);
  FakeGpu::start({.has_mapping = false});
  EXPECT_EQ(kind_of([] { make_fake_cuda_arena(config_of(0)); }, {"management: no"}), ErrorKind::unavailable);
}

TEST_F(CudaArenaTest, PagesOfOtherSizesFitOrAreRefused) {
  FakeGpu::start({.page_bytes = 64 << 10});
  EXPECT_EQ(make_fake_cuda_arena(config_of(0))->page_bytes(), 64 << 10);
  FakeGpu::start({.page_bytes = 2 * kPage});
  EXPECT_EQ(kind_of([] { make_fake_cuda_arena(config_of(0)); }, {std::to_string(2 * kPage)}), ErrorKind::unavailable);
  FakeGpu::start();
  ArenaConfig config = config_of(0);
  config.layout.user_stride_bytes = kPage + 4096;
  EXPECT_EQ(kind_of([&] { make_fake_cuda_arena(config); }, {"user"}), ErrorKind::invalid_argument);
}

TEST_F(CudaArenaTest, DmaBufsAreForCommittedMemoryOfGpusThatHaveThem) {
  const auto a = make_fake_cuda_arena(config_of(0));
  for (const ArenaRange range : a->ranges()) EXPECT_TRUE(a->dma_buf(range).is_open());
  const int64_t half = a->layout().half_offset(0);
  EXPECT_TRUE(a->dma_buf({half + 4096, kPage - 4096}).is_open());
  for (const ArenaRange range :
       {ArenaRange{half, kPage + 4096}, ArenaRange{half + kPage, 4096}, ArenaRange{half, 0}, ArenaRange{-4096, 4096}}) {
    EXPECT_EQ(kind_of([&] { static_cast<void>(a->dma_buf(range)); }), ErrorKind::invalid_argument);
  }
  a->close();
  EXPECT_EQ(kind_of([&] { static_cast<void>(a->dma_buf({0, 4096})); }), ErrorKind::closed);
}

TEST_F(CudaArenaTest, WithoutDmaBufsTheArenaWorksAndTheRefusalSaysWhy) {
  for (const bool has_rdma : {false, true}) {
    FakeGpu::start({.has_rdma = has_rdma, .has_dma_buf = !has_rdma});
    const auto a = make_fake_cuda_arena(config_of(0));
    EXPECT_EQ(kind_of(
                  [&] {
                    static_cast<void>(a->dma_buf({0, 4096}));
                  },
                  {has_rdma ? "dma-buf: no" : "RDMA to mapped memory: no"}),
              ErrorKind::unavailable);
  }
}

TEST_F(CudaArenaTest, WhatCardsWriteIsWaitedForWhereTheGpuDoesNotOrderIt) {
  for (const int order : {0, 100, 200}) {
    FakeGpu::start({.nic_write_order = order});
    const auto a = make_fake_cuda_arena(config_of(0));
    const auto access = a->nic_access();
    EXPECT_EQ(access->obstacle(), "");
    EXPECT_EQ(access->needs_flush(), order == 0);
    EXPECT_EQ(FakeGpu::nic_flushes(), 0);
    std::thread([&] { access->flush(); }).join();  // which has no context of its own
    EXPECT_EQ(FakeGpu::nic_flushes(), 1);
    EXPECT_TRUE(access->dma_buf(a->ranges()[0]).is_open());
    FakeGpu::fail_call(1, CUDA_ERROR_UNKNOWN);  // cuCtxPushCurrent
    EXPECT_EQ(kind_of([&] { access->flush(); }), ErrorKind::internal);
    FakeGpu::fail_call(2, CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(kind_of([&] { access->flush(); }, {"cuFlushGPUDirectRDMAWrites", "CUDA device 0"}), ErrorKind::internal);
  }
  EXPECT_EQ(FakeGpu::broken_rules(), 0);
}

TEST_F(CudaArenaTest, AGpuThatCardsCannotReachOrThatPromisesNothingSaysSo) {
  FakeGpu::start({.nic_write_order = 0, .has_nic_flush = false});
  EXPECT_NE(make_fake_cuda_arena(config_of(0))->nic_access()->obstacle().find("neither orders"), std::string::npos);
  FakeGpu::start({.has_rdma = false});
  EXPECT_NE(make_fake_cuda_arena(config_of(0))->nic_access()->obstacle().find("cannot reach"), std::string::npos);
}

TEST_F(CudaArenaTest, AnyThreadMayGrowAndCloseAndFindsItsContextAsItWas) {
  const auto a = make_fake_cuda_arena(config_of(0));
  std::thread([&] {
    a->grow(2 * kPage, 0);
    EXPECT_EQ(FakeGpu::live_text().find("pushed"), std::string::npos) << FakeGpu::live_text();
    a->close();
  }).join();
  EXPECT_EQ(FakeGpu::live_text().find("pinned"), std::string::npos) << FakeGpu::live_text();
}

class PinnedMemoryTest : public CudaArenaTest {
 protected:
  static std::shared_ptr<const CudaDevice> device() { return std::make_shared<const CudaDevice>(0, FakeGpu::driver()); }
};

TEST_F(PinnedMemoryTest, IsZeroAndTheSameForHostAndGpu) {
  PinnedMemory memory = PinnedMemory::make(device(), 10000, "rank 0", "test");
  EXPECT_TRUE(std::all_of(memory.host(), memory.host() + 10000, [](std::byte b) { return b == std::byte{0}; }));
  memory.host()[9999] = std::byte{1};
  EXPECT_EQ(memory.on_gpu()[9999], std::byte{1});
  std::byte* const host = memory.host();
  PinnedMemory taken = std::move(memory);
  EXPECT_EQ(taken.host(), host);
  taken = PinnedMemory::make(device(), 10, "rank 0", "test");
  EXPECT_EQ(taken.bytes(), 10);
  taken.reset();
  EXPECT_EQ(taken.host(), nullptr);
}

TEST_F(PinnedMemoryTest, MemoryFileIsSharedByWhoeverMapsIt) {
  const UniqueFd file(memfd_create("pinned", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), 8192), 0);
  const PinnedMemory a = PinnedMemory::share(device(), file.get(), 8192, "rank 0", "ring");
  const PinnedMemory b = PinnedMemory::share(device(), file.get(), 8192, "rank 1", "ring");
  a.on_gpu()[8191] = std::byte{3};
  EXPECT_EQ(b.host()[8191], std::byte{3});
}

TEST_F(PinnedMemoryTest, AnyDriverCallThatFailsLeavesNothing) {
  const UniqueFd file(memfd_create("pinned", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), 8192), 0);
  const auto gpu = device();
  const std::string live = FakeGpu::live_text();
  int64_t n = 1;
  for (; n < kMostCalls; ++n) {
    FakeGpu::fail_call(n);
    try {
      const PinnedMemory a = PinnedMemory::make(gpu, 8192, "rank 0", "fault record");
      const PinnedMemory b = PinnedMemory::share(gpu, file.get(), 8192, "rank 0", "ring");
      FakeGpu::fail_call(0);
      break;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("rank 0"), std::string::npos) << e.what();
    }
    EXPECT_EQ(FakeGpu::live_text(), live) << n;
  }
  EXPECT_EQ(n, 7);
}

TEST(CudaDriver, AbsentLibraryIsNamedWithWhatIsNeeded) {
  EXPECT_EQ(
      kind_of([] { load_cuda_driver("libno-such-driver.so.1"); }, {"libno-such-driver.so.1", "needed", "CPU ranks"}),
      ErrorKind::unavailable);
}

TEST(CudaDriver, LibraryWithoutTheFunctionsIsTooOld) {
  EXPECT_EQ(kind_of([] { load_cuda_driver("libm.so.6"); }, {"libm.so.6", "cuGetProcAddress_v2", "too old"}),
            ErrorKind::unavailable);
}

TEST(CudaDriver, OldVersionIsNamedBesideTheOneNeeded) {
  EXPECT_EQ(kind_of([] { check_driver_version(11080); }, {"CUDA 11.8", "needs a driver for"}), ErrorKind::unavailable);
  check_driver_version(CUDA_VERSION);
  check_driver_version(CUDA_VERSION + 1000);
}

TEST(CudaDriver, EveryResultBecomesAnErrorOfItsKind) {
  const auto kind = [](CUresult result) {
    return kind_of(
        [result] {
          check_result(FakeGpu::driver(), result,
                       {.name = "cuMemMap", .purpose = "map it", .where = "rank 3", .values = "8 bytes"});
        },
        {"cannot map it", "rank 3", "8 bytes", "cuMemMap", std::to_string(static_cast<int>(result))});
  };
  EXPECT_EQ(kind(CUDA_ERROR_OUT_OF_MEMORY), ErrorKind::resource);
  EXPECT_EQ(kind(CUDA_ERROR_NOT_SUPPORTED), ErrorKind::unavailable);
  EXPECT_EQ(kind(CUDA_ERROR_MPS_CONNECTION_FAILED), ErrorKind::unavailable);
  EXPECT_EQ(kind(CUDA_ERROR_ILLEGAL_ADDRESS), ErrorKind::internal);
  check_result(FakeGpu::driver(), CUDA_SUCCESS, {.name = "cuMemMap", .purpose = "map it"});
}

}  // namespace
}  // namespace tilewire

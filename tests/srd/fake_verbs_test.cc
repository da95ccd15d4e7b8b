// The fake EFA device refuses what a real one refuses; without that the tests over it would show little.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <functional>

#include "fake_verbs/control.h"
#include "srd/raw_queue.h"

namespace tilewire {
namespace {

using namespace verbs;

class FakeDeviceTest : public ::testing::Test {
 protected:
  FakeDeviceTest() { FakeVerbs::set("direct=1"); }
  ~FakeDeviceTest() override { FakeVerbs::set("direct=0,rnr_retry=1"); }

  RawQueue queue_{4};
};

TEST_F(FakeDeviceTest, QueuePairsOfOtherKindsOrSizesAreRefused) {
  EXPECT_EQ(queue_.make(queue_.good_attr()), 0);
  const auto expect = [&](int error, const std::function<void(abi::QpInitAttrEx&)>& change) {
    abi::QpInitAttrEx attr = queue_.good_attr();
    change(attr);
    EXPECT_EQ(queue_.make(attr), error);
  };
  expect(EINVAL, [](auto& attr) { attr.qp_type = abi::kQpRc; });
  expect(EINVAL, [](auto& attr) { attr.comp_mask = abi::kInitAttrSendOps; });
  expect(EOPNOTSUPP, [](auto& attr) { attr.comp_mask |= 1u << 1; });
  expect(EOPNOTSUPP, [](auto& attr) { attr.send_ops_flags |= 1u << 5; });
  expect(EINVAL, [](auto& attr) { attr.cap.max_send_sge = 3; });
  expect(EINVAL, [](auto& attr) { attr.cap.max_inline_data = 33; });
  expect(EINVAL, [](auto& attr) { attr.cap.max_send_wr = 4097; });
  expect(EINVAL, [](auto& attr) { attr.send_cq = nullptr; });
  EXPECT_EQ(queue_.make(queue_.good_attr(), {1, abi::kEfaSrd, 0, 0, 0}), EINVAL);
  EXPECT_EQ(queue_.make(queue_.good_attr(), {0, 1, 0, 0, 0}), EOPNOTSUPP);
  EXPECT_EQ(queue_.make(queue_.good_attr(), {0, abi::kEfaSrd, 2, 0, 0}), EOPNOTSUPP);
  EXPECT_EQ(queue_.make(queue_.good_attr(), {0, abi::kEfaSrd, abi::kEfaQpUnsolicitedWriteRecv, 0, 0}), 0);
  abi::QpInitAttr rc{};
  EXPECT_EQ(queue_.library().create_qp(queue_.pd(), &rc), nullptr);
}

TEST_F(FakeDeviceTest, OtherMasksThanItsOwnAreRefused) {
  ASSERT_EQ(queue_.make(queue_.good_attr()), 0);
  EXPECT_EQ(queue_.modify(abi::kQpInit, RawQueue::kInitMask | abi::kMaskAccessFlags), EINVAL) << "as of RC";
  EXPECT_EQ(queue_.modify(abi::kQpInit, RawQueue::kInitMask & ~abi::kMaskQkey), EINVAL);
  EXPECT_EQ(queue_.modify(abi::kQpRtr, abi::kMaskState), EINVAL) << "not from RESET";
  EXPECT_EQ(queue_.modify(abi::kQpInit, RawQueue::kInitMask), 0);
  EXPECT_EQ(queue_.modify(abi::kQpRtr, abi::kMaskState | abi::kMaskAv), EINVAL);
  EXPECT_EQ(queue_.modify(abi::kQpRtr, abi::kMaskState), 0);
  EXPECT_EQ(queue_.modify(abi::kQpRts, abi::kMaskState), EINVAL);
  EXPECT_EQ(queue_.modify(abi::kQpRts, abi::kMaskState | abi::kMaskSqPsn | abi::kMaskTimeout), EINVAL);
  FakeVerbs::set("rnr_retry=0");
  EXPECT_EQ(queue_.modify(abi::kQpRts, abi::kMaskState | abi::kMaskSqPsn | abi::kMaskRnrRetry), EINVAL);
  FakeVerbs::set("rnr_retry=1");
  EXPECT_EQ(queue_.modify(abi::kQpRts, abi::kMaskState | abi::kMaskSqPsn | abi::kMaskRnrRetry), 0);
}

TEST_F(FakeDeviceTest, RequestsThatItCannotDoAreRefusedAndNothingIsSent) {
  queue_.make_ready(0);
  const auto refused = [&](const std::function<void()>& request) {
    queue_.ex()->wr_start(queue_.ex());
    request();
    EXPECT_EQ(queue_.ex()->wr_complete(queue_.ex()), EINVAL);
    EXPECT_EQ(queue_.sent.only(), -1);
  };
  refused([&] { queue_.begin(0), queue_.set_source(), queue_.set_target(); });                        // not signalled
  refused([&] { queue_.begin(abi::kSendSignaled | 1u), queue_.set_source(), queue_.set_target(); });  // fenced
  refused([&] {
    queue_.begin(), queue_.ex()->wr_set_inline_data(queue_.ex(), queue_.memory, 8), queue_.set_target();
  });                                                     // inline
  refused([&] { queue_.begin(), queue_.set_target(); });  // without memory
  refused([&] { queue_.begin(), queue_.set_source(); });  // to nobody
  const abi::Sge two[2] = {{reinterpret_cast<uint64_t>(queue_.memory), 8, queue_.key()}, {0, 8, queue_.key()}};
  refused([&] {
    queue_.begin(), queue_.ex()->wr_set_sge_list(queue_.ex(), 2, two), queue_.set_target();
  });  // of two pieces
  refused(
      [&] { queue_.add(), queue_.begin(0), queue_.set_source(), queue_.set_target(); });  // a good one with a bad one
  abi::SendWr wr{};
  abi::SendWr* bad = nullptr;
  EXPECT_EQ(queue_.library().post_send(queue_.qp(), &wr, &bad), EINVAL) << "RDMA goes another way";
  FakeVerbs::set("active=1");
}

TEST_F(FakeDeviceTest, AFullQueueRefusesAllOfABatch) {
  queue_.make_ready(0);
  FakeVerbs::set("direct=1");
  queue_.ex()->wr_start(queue_.ex());
  for (int i = 0; i < 5; ++i) queue_.add();
  EXPECT_EQ(queue_.ex()->wr_complete(queue_.ex()), ENOMEM);
  EXPECT_EQ(queue_.sent.only(), -1);
}

TEST_F(FakeDeviceTest, AnImmediateTakesAReceiveAndWithoutOneTheReceiverIsNotReady) {
  queue_.make_ready(0);
  queue_.memory[3] = std::byte{42};
  queue_.ex()->wr_start(queue_.ex());
  queue_.add();
  ASSERT_EQ(queue_.ex()->wr_complete(queue_.ex()), 0);
  EXPECT_EQ(queue_.sent.only(), abi::kWcRnrRetryExcErr);
  EXPECT_EQ(queue_.arrived.only(), -1);
  abi::Sge piece{};
  for (const int pieces : {0, 1}) {  // libefa passes over a receive that has none
    abi::RecvWr receive{.wr_id = 0, .next = nullptr, .sg_list = &piece, .num_sge = pieces};
    abi::RecvWr* bad = nullptr;
    ASSERT_EQ(queue_.library().post_recv(queue_.qp(), &receive, &bad), 0);
    queue_.ex()->wr_start(queue_.ex());
    queue_.add();
    ASSERT_EQ(queue_.ex()->wr_complete(queue_.ex()), 0);
    EXPECT_EQ(queue_.sent.only(), pieces == 0 ? abi::kWcRnrRetryExcErr : abi::kWcSuccess);
    EXPECT_EQ(queue_.arrived.only(), pieces == 0 ? -1 : static_cast<int>(abi::kWcSuccess));
  }
  EXPECT_EQ(queue_.memory[67], std::byte{42});
}

TEST_F(FakeDeviceTest, AnImmediateBetweenAnEndThatPostsReceivesAndOneThatDoesNotIsRefused) {
  queue_.make_ready(0);
  SrdQueue without_receives(queue_.setup());
  queue_.ex()->wr_start(queue_.ex());
  queue_.begin();
  queue_.set_source();
  queue_.set_target(without_receives.number());
  ASSERT_EQ(queue_.ex()->wr_complete(queue_.ex()), 0);
  EXPECT_EQ(queue_.sent.only(), abi::kWcRemInvReqErr);
}

// libefa holds a lock while completions are looked at, and destroying the queue pair would wait for it.
TEST_F(FakeDeviceTest, WhatIsThrownInALookLeavesTheQueuePairFreeToGo) {
  SrdQueue queue(queue_.setup());
  queue_.ex()->wr_start(queue_.ex());
  queue_.begin();
  queue_.set_source();
  queue_.set_target(queue.number());
  ASSERT_EQ(queue_.ex()->wr_complete(queue_.ex()), 0);
  EXPECT_EQ(queue_.sent.only(), abi::kWcSuccess);
  const auto look = [&] { queue.take_arrived([](const SrdArrived&) { throw std::runtime_error("of nobody"); }); };
  EXPECT_THROW(look(), std::runtime_error);
}

TEST_F(FakeDeviceTest, WhatIsStillUsedIsNotFreed) {
  queue_.make_ready(0);
  const int64_t before = FakeVerbs::count("freed_too_early");
  EXPECT_EQ(queue_.library().destroy_cq(queue_.sent.owner.get()), EBUSY);
  EXPECT_EQ(queue_.library().dealloc_pd(queue_.pd()), EBUSY);
  EXPECT_EQ(FakeVerbs::count("freed_too_early"), before + 2);
}

}  // namespace
}  // namespace tilewire

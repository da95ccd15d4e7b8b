// The fake EFA device refuses what a real one refuses; without that the tests over it would show little.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <functional>

#include "fake_verbs/control.h"
#include "transport/srd/srd_port.h"
#include "transport/verbs/handles.h"

namespace tilewire {
namespace {

using namespace verbs;

// A queue pair that sends to itself, made by hand.
class FakeDeviceTest : public ::testing::Test {
 protected:
  FakeDeviceTest() {
    options_.verbs_library = options_.efa_library = FakeVerbs::library();
    libraries_ = load_srd_libraries(options_);
    FakeVerbs::set("direct=1");
    port_ = srd_port_of(libraries_, open_port(verbs(), srd_port_wish(libraries_, options_), {}));
    pd_ = Pd(verbs(), verbs().alloc_pd(context()));
    mr_ = Mr(verbs(), verbs().reg_mr(pd_.get(), memory_, sizeof(memory_),
                                     static_cast<int>(abi::kAccessLocalWrite | abi::kAccessRemoteWrite)));
    for (Completions* cq : {&sent_, &arrived_}) {
      abi::CqInitAttrEx attr{};
      attr.cqe = 8;
      attr.wc_flags = abi::kWcStandardFlags;
      abi::EfaCqInitAttr efa{};
      cq->ex = libraries_.efa->create_cq(context(), &attr, &efa, sizeof(efa));
      cq->owner = Cq(verbs(), &cq->ex->base);
    }
    abi::AhAttr path{};
    path.is_global = path.port_num = 1;
    path.grh.dgid = port_.port.gid.gid;
    ah_ = Ah(verbs(), verbs().create_ah(pd_.get(), &path));
  }
  ~FakeDeviceTest() override { FakeVerbs::set("direct=0,max_qp=256,rnr_retry=1"); }

  const Verbs& verbs() const { return *libraries_.verbs; }
  abi::Context* context() const { return port_.port.context.get(); }

  abi::QpInitAttrEx good_attr() {
    abi::QpInitAttrEx attr{};
    attr.send_cq = sent_.owner.get();
    attr.recv_cq = arrived_.owner.get();
    attr.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    attr.qp_type = abi::kQpDriver;
    attr.comp_mask = abi::kInitAttrPd | abi::kInitAttrSendOps;
    attr.pd = pd_.get();
    attr.send_ops_flags = abi::kSendOpsRdmaWrite | abi::kSendOpsRdmaWriteWithImm;
    return attr;
  }
  // The errno of making one; 0 where it was made, and then it is qp_.
  int make(abi::QpInitAttrEx attr, abi::EfaQpInitAttr efa = {}) {
    qp_.reset();
    errno = 0;
    qp_ = Qp(verbs(), libraries_.efa->create_qp(context(), &attr, &efa, sizeof(efa)));
    ex_ = qp_ ? verbs().qp_to_qp_ex(qp_.get()) : nullptr;
    return errno;
  }
  int modify(abi::QpState state, int mask) {
    abi::QpAttr attr{};
    attr.qp_state = state;
    attr.port_num = 1;
    attr.qkey = 5;
    return verbs().modify_qp(qp_.get(), &attr, mask);
  }
  void make_ready() {
    ASSERT_EQ(make(good_attr()), 0);
    ASSERT_EQ(modify(abi::kQpInit, kInit), 0);
    ASSERT_EQ(modify(abi::kQpRtr, abi::kMaskState), 0);
    ASSERT_EQ(modify(abi::kQpRts, abi::kMaskState | abi::kMaskSqPsn), 0);
  }
  void begin(unsigned flags = abi::kSendSignaled) {
    ex_->wr_id = 9;
    ex_->wr_flags = flags;
    ex_->wr_rdma_write_imm(ex_, mr_->rkey, reinterpret_cast<uint64_t>(memory_) + 64, 3);
  }
  void set_source() { ex_->wr_set_sge(ex_, mr_->lkey, reinterpret_cast<uint64_t>(memory_), 16); }
  void set_target() { ex_->wr_set_ud_addr(ex_, ah_.get(), qp_->qp_num, 5); }
  void add() {
    begin();
    set_source();
    set_target();
  }

  static constexpr int kInit = abi::kMaskState | abi::kMaskPkeyIndex | abi::kMaskPort | abi::kMaskQkey;

  struct Completions {
    Cq owner;
    abi::CqEx* ex = nullptr;
    // The status of the only one there is, -1 where there is none.
    int only() const {
      abi::PollCqAttr attr{};
      if (ex->start_poll(ex, &attr) != 0) return -1;
      const int status = ex->status;
      EXPECT_NE(ex->next_poll(ex), 0);
      ex->end_poll(ex);
      return status;
    }
  };

  SrdOptions options_;
  SrdLibraries libraries_;
  SrdPort port_;
  Pd pd_;
  std::byte memory_[4096] = {};
  Mr mr_;
  Completions sent_;
  Completions arrived_;
  Ah ah_;
  Qp qp_;
  abi::QpEx* ex_ = nullptr;
};

TEST_F(FakeDeviceTest, QueuePairsOfOtherKindsOrSizesAreRefused) {
  EXPECT_EQ(make(good_attr()), 0);
  const auto expect = [&](int error, const std::function<void(abi::QpInitAttrEx&)>& change) {
    abi::QpInitAttrEx attr = good_attr();
    change(attr);
    EXPECT_EQ(make(attr), error);
  };
  expect(EINVAL, [](auto& attr) { attr.qp_type = abi::kQpRc; });
  expect(EINVAL, [](auto& attr) { attr.comp_mask = abi::kInitAttrSendOps; });
  expect(EOPNOTSUPP, [](auto& attr) { attr.comp_mask |= 1u << 1; });
  expect(EOPNOTSUPP, [](auto& attr) { attr.send_ops_flags |= 1u << 5; });
  expect(EINVAL, [](auto& attr) { attr.cap.max_send_sge = 3; });
  expect(EINVAL, [](auto& attr) { attr.cap.max_inline_data = 33; });
  expect(EINVAL, [](auto& attr) { attr.cap.max_send_wr = 4097; });
  expect(EINVAL, [](auto& attr) { attr.send_cq = nullptr; });
  EXPECT_EQ(make(good_attr(), {1, abi::kEfaSrd, 0, 0, 0}), EINVAL);
  EXPECT_EQ(make(good_attr(), {0, 1, 0, 0, 0}), EOPNOTSUPP);
  EXPECT_EQ(make(good_attr(), {0, abi::kEfaSrd, 2, 0, 0}), EOPNOTSUPP);
  EXPECT_EQ(make(good_attr(), {0, abi::kEfaSrd, abi::kEfaQpUnsolicitedWriteRecv, 0, 0}), 0);
  abi::QpInitAttr rc{};
  EXPECT_EQ(verbs().create_qp(pd_.get(), &rc), nullptr);
}

TEST_F(FakeDeviceTest, OtherMasksThanItsOwnAreRefused) {
  ASSERT_EQ(make(good_attr()), 0);
  EXPECT_EQ(modify(abi::kQpInit, kInit | abi::kMaskAccessFlags), EINVAL) << "as of RC";
  EXPECT_EQ(modify(abi::kQpInit, kInit & ~abi::kMaskQkey), EINVAL);
  EXPECT_EQ(modify(abi::kQpRtr, abi::kMaskState), EINVAL) << "not from RESET";
  EXPECT_EQ(modify(abi::kQpInit, kInit), 0);
  EXPECT_EQ(modify(abi::kQpRtr, abi::kMaskState | abi::kMaskAv), EINVAL);
  EXPECT_EQ(modify(abi::kQpRtr, abi::kMaskState), 0);
  EXPECT_EQ(modify(abi::kQpRts, abi::kMaskState), EINVAL);
  EXPECT_EQ(modify(abi::kQpRts, abi::kMaskState | abi::kMaskSqPsn | abi::kMaskTimeout), EINVAL);
  FakeVerbs::set("rnr_retry=0");
  EXPECT_EQ(modify(abi::kQpRts, abi::kMaskState | abi::kMaskSqPsn | abi::kMaskRnrRetry), EINVAL);
  FakeVerbs::set("rnr_retry=1");
  EXPECT_EQ(modify(abi::kQpRts, abi::kMaskState | abi::kMaskSqPsn | abi::kMaskRnrRetry), 0);
}

TEST_F(FakeDeviceTest, RequestsThatItCannotDoAreRefusedAndNothingIsSent) {
  make_ready();
  const auto refused = [&](const std::function<void()>& request) {
    ex_->wr_start(ex_);
    request();
    EXPECT_EQ(ex_->wr_complete(ex_), EINVAL);
    EXPECT_EQ(sent_.only(), -1);
  };
  refused([&] { begin(0), set_source(), set_target(); });                             // not signalled
  refused([&] { begin(abi::kSendSignaled | 1u), set_source(), set_target(); });       // fenced
  refused([&] { begin(), ex_->wr_set_inline_data(ex_, memory_, 8), set_target(); });  // inline
  refused([&] { begin(), set_target(); });                                            // without memory
  refused([&] { begin(), set_source(); });                                            // to nobody
  const abi::Sge two[2] = {{reinterpret_cast<uint64_t>(memory_), 8, mr_->lkey}, {0, 8, mr_->lkey}};
  refused([&] { begin(), ex_->wr_set_sge_list(ex_, 2, two), set_target(); });  // of two pieces
  refused([&] { add(), begin(0), set_source(), set_target(); });               // a good one with a bad one
  abi::SendWr wr{};
  abi::SendWr* bad = nullptr;
  EXPECT_EQ(verbs().post_send(qp_.get(), &wr, &bad), EINVAL) << "RDMA goes another way";
  FakeVerbs::set("active=1");
}

TEST_F(FakeDeviceTest, AFullQueueRefusesAllOfABatch) {
  make_ready();
  FakeVerbs::set("direct=1");
  ex_->wr_start(ex_);
  for (int i = 0; i < 5; ++i) add();
  EXPECT_EQ(ex_->wr_complete(ex_), ENOMEM);
  EXPECT_EQ(sent_.only(), -1);
}

TEST_F(FakeDeviceTest, AnImmediateTakesAReceiveAndWithoutOneTheReceiverIsNotReady) {
  make_ready();
  memory_[3] = std::byte{42};
  ex_->wr_start(ex_);
  add();
  ASSERT_EQ(ex_->wr_complete(ex_), 0);
  EXPECT_EQ(sent_.only(), abi::kWcRnrRetryExcErr);
  EXPECT_EQ(arrived_.only(), -1);
  abi::RecvWr receive{};
  abi::RecvWr* bad = nullptr;
  ASSERT_EQ(verbs().post_recv(qp_.get(), &receive, &bad), 0);
  ex_->wr_start(ex_);
  add();
  ASSERT_EQ(ex_->wr_complete(ex_), 0);
  EXPECT_EQ(sent_.only(), abi::kWcSuccess);
  EXPECT_EQ(arrived_.only(), abi::kWcSuccess);
  EXPECT_EQ(memory_[67], std::byte{42});
}

TEST_F(FakeDeviceTest, WhatIsStillUsedIsNotFreed) {
  make_ready();
  const int64_t before = FakeVerbs::count("freed_too_early");
  EXPECT_EQ(verbs().destroy_cq(sent_.owner.get()), EBUSY);
  EXPECT_EQ(verbs().dealloc_pd(pd_.get()), EBUSY);
  EXPECT_EQ(FakeVerbs::count("freed_too_early"), before + 2);
}

}  // namespace
}  // namespace tilewire

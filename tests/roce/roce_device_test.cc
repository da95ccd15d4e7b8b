// The fake RoCE device refuses and promises what a real one does; without that the tests over it would show little.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <map>
#include <vector>

#include "fake_verbs/control.h"
#include "transport/verbs/handles.h"
#include "transport/verbs/port.h"

namespace tilewire {
namespace {

using namespace verbs;

// A queue pair that writes to itself.
class RoceDevice : public ::testing::Test {
 protected:
  static constexpr int kInitMask = abi::kMaskState | abi::kMaskPkeyIndex | abi::kMaskPort | abi::kMaskAccessFlags;
  static constexpr int kRtrMask = abi::kMaskState | abi::kMaskAv | abi::kMaskPathMtu | abi::kMaskDestQpn |
                                  abi::kMaskRqPsn | abi::kMaskMaxDestRdAtomic | abi::kMaskMinRnrTimer;
  static constexpr int kRtsMask = abi::kMaskState | abi::kMaskTimeout | abi::kMaskRetryCnt | abi::kMaskRnrRetry |
                                  abi::kMaskSqPsn | abi::kMaskMaxRdAtomic;
  static constexpr uint32_t kEntries = 4;

  RoceDevice() {
    FakeVerbs::set("direct=1,roce=1,devices=0");
    port_ = open_port(verbs_, {.device_option = "rc_device", .judge = [](Port&) { return ""; }}, {});
    pd_ = Pd(verbs_, verbs_.alloc_pd(port_.context.get()));
    cq_ = Cq(verbs_, verbs_.create_cq(port_.context.get(), 32, nullptr, nullptr, 0));
    mr_ = Mr(verbs_, verbs_.reg_mr(pd_.get(), memory_.data(), sizeof(memory_),
                                   static_cast<int>(abi::kAccessLocalWrite | abi::kAccessRemoteWrite)));
    abi::QpInitAttr attr = good_attr();
    qp_ = Qp(verbs_, verbs_.create_qp(pd_.get(), &attr));
  }
  ~RoceDevice() override {
    qp_.reset();
    FakeVerbs::set("direct=0,roce=0,devices=2,fail_nth=0");
  }

  abi::QpInitAttr good_attr() const {
    abi::QpInitAttr attr{};
    attr.send_cq = attr.recv_cq = cq_.get();
    attr.qp_type = abi::kQpRc;
    attr.cap = {.max_send_wr = kEntries, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 8};
    return attr;
  }
  int modify(abi::QpState state, int mask) {
    abi::QpAttr attr{};
    attr.qp_state = state;
    attr.port_num = attr.ah_attr.is_global = 1;
    attr.qp_access_flags = abi::kAccessLocalWrite | abi::kAccessRemoteWrite;
    attr.path_mtu = abi::kMtu4096;
    attr.dest_qp_num = qp_->qp_num;
    EXPECT_EQ(verbs_.query_gid(port_.context.get(), 1, 0, &attr.ah_attr.grh.dgid), 0);
    return verbs_.modify_qp(qp_.get(), &attr, mask);
  }
  void make_ready() {
    ASSERT_EQ(modify(abi::kQpInit, kInitMask), 0);
    ASSERT_EQ(modify(abi::kQpRtr, kRtrMask), 0);
    ASSERT_EQ(modify(abi::kQpRts, kRtsMask), 0);
  }
  // A chain of writes of eight bytes, the i-th to the i-th place of the second half of memory. The errno of posting it.
  int post(size_t count, const std::function<void(size_t, abi::SendWr&)>& change = {}) {
    std::vector<abi::SendWr> chain(count);
    std::vector<abi::Sge> sges(count, {reinterpret_cast<uint64_t>(memory_.data()), 8, mr_->lkey});
    for (size_t i = 0; i < count; ++i) {
      chain[i].wr_id = i;
      chain[i].next = i + 1 < count ? &chain[i + 1] : nullptr;
      chain[i].sg_list = &sges[i];
      chain[i].num_sge = 1;
      chain[i].send_flags = abi::kSendSignaled;
      chain[i].remote_addr = reinterpret_cast<uint64_t>(memory_.data() + memory_.size() / 2 + i);
      chain[i].rkey = mr_->rkey;
      if (change) change(i, chain[i]);
    }
    abi::SendWr* bad = nullptr;
    const int error = verbs_.post_send(qp_.get(), chain.data(), &bad);
    refused_ = error == 0 ? count : static_cast<size_t>(bad - chain.data());
    return error;
  }
  void post_receive() {
    abi::RecvWr receive{.wr_id = 100, .next = nullptr, .sg_list = nullptr, .num_sge = 0};
    abi::RecvWr* bad = nullptr;
    ASSERT_EQ(verbs_.post_recv(qp_.get(), &receive, &bad), 0);
  }
  // Status by wr_id, in the order of coming.
  std::vector<std::pair<uint64_t, int>> completions() {
    std::array<abi::Wc, 16> wc;
    std::vector<std::pair<uint64_t, int>> all;
    const int count = verbs_.poll_cq(cq_.get(), 16, wc.data());
    for (int i = 0; i < count; ++i) all.emplace_back(wc[i].wr_id, wc[i].status);
    return all;
  }

  using Completed = std::vector<std::pair<uint64_t, int>>;

  const Verbs& verbs_ = load_verbs(FakeVerbs::library());
  alignas(8) std::array<uint64_t, 64> memory_{77};
  Port port_;
  Pd pd_;
  Cq cq_;
  Mr mr_;
  Qp qp_;
  size_t refused_ = 0;
};

TEST_F(RoceDevice, OtherQueuePairsAndOtherMasksThanThoseOfRcAreRefused) {
  const auto refuses = [&](const std::function<void(abi::QpInitAttr&)>& change) {
    abi::QpInitAttr attr = good_attr();
    change(attr);
    return verbs_.create_qp(pd_.get(), &attr) == nullptr && errno == EINVAL;
  };
  EXPECT_TRUE(refuses([](auto& attr) { attr.qp_type = abi::kQpDriver; }));
  EXPECT_TRUE(refuses([](auto& attr) { attr.send_cq = nullptr; }));
  EXPECT_TRUE(refuses([](auto& attr) { attr.cap.max_send_wr = 4097; }));
  EXPECT_TRUE(refuses([](auto& attr) { attr.cap.max_inline_data = 65; }));
  EXPECT_EQ(modify(abi::kQpRtr, kRtrMask), EINVAL) << "not from RESET";
  EXPECT_EQ(modify(abi::kQpInit, kInitMask | abi::kMaskQkey), EINVAL) << "as of SRD";
  EXPECT_EQ(modify(abi::kQpInit, kInitMask), 0);
  EXPECT_EQ(modify(abi::kQpRtr, kRtrMask & ~abi::kMaskAv), EINVAL);
  EXPECT_EQ(modify(abi::kQpRtr, kRtrMask), 0);
  EXPECT_EQ(post(1), EINVAL) << "before RTS";
  EXPECT_EQ(modify(abi::kQpRts, kRtsMask & ~abi::kMaskRnrRetry), EINVAL);
  EXPECT_EQ(modify(abi::kQpRts, kRtsMask), 0);
  EXPECT_EQ(post(1), 0);
}

TEST_F(RoceDevice, WhatItCannotTakeIsRefusedWithAllBehindItAndWhatWasBeforeItGoes) {
  make_ready();
  const auto second = [](unsigned flags) {
    return [flags](size_t i, abi::SendWr& wr) {
      if (i == 1) wr.send_flags = flags;
    };
  };
  EXPECT_EQ(post(3, second(abi::kSendSignaled | 1u)), EINVAL) << "fenced";
  EXPECT_EQ(refused_, 1u);
  EXPECT_EQ(completions(), (Completed{{0, abi::kWcSuccess}}));
  EXPECT_EQ(post(1,
                 [](size_t, abi::SendWr& wr) {
                   wr.send_flags |= abi::kSendInline;
                   wr.sg_list->length = 16;
                 }),
            EINVAL);
  EXPECT_EQ(completions(), Completed{});
}

// What is not signalled is told by nothing, and its entries are free with the next that is.
TEST_F(RoceDevice, EntriesAreFreeOnceASignalledRequestIsDone) {
  make_ready();
  const auto unsignalled = [](size_t, abi::SendWr& wr) { wr.send_flags = 0; };
  EXPECT_EQ(post(kEntries + 1, unsignalled), ENOMEM);
  EXPECT_EQ(refused_, kEntries);
  EXPECT_EQ(completions(), Completed{});
  EXPECT_EQ(memory_[memory_.size() / 2 + kEntries - 1], 77u) << "they went";
  EXPECT_EQ(post(1), ENOMEM) << "for ever: nobody asked to be told";
}

TEST_F(RoceDevice, AnImmediateTakesAReceiveAndARequestThatFailsEndsTheQueuePair) {
  make_ready();
  post_receive();
  post_receive();
  const auto immediate = [](size_t, abi::SendWr& wr) { wr.opcode = abi::kWrRdmaWriteWithImm; };
  EXPECT_EQ(post(1, immediate), 0);
  EXPECT_EQ(completions(), (Completed{{100, abi::kWcSuccess}, {0, abi::kWcSuccess}}));
  FakeVerbs::set("fail_nth=2,fail_code=13");
  EXPECT_EQ(post(3), 0);
  const int flushed = abi::kWcWrFlushErr;
  EXPECT_EQ(completions(), (Completed{{0, abi::kWcSuccess}, {1, abi::kWcRetryExcErr}, {100, flushed}, {2, flushed}}));
  EXPECT_EQ(post(1), 0) << "as a real one: it is flushed";
  EXPECT_EQ(completions(), (Completed{{0, flushed}}));
}

}  // namespace
}  // namespace tilewire

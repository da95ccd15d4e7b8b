// For tests of the SRD transport over the fake devices, with receives and without.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>

#include "fake_verbs/control.h"
#include "transport/srd/srd_transport.h"
#include "transport/test_network.h"

namespace tilewire {

// Settings of the fake that these tests change.
inline constexpr char kAsBefore[] =
    "seed=1,window=16,held=8,packet_bytes=8192,enomem_every=0,fail_nth=0,fatal=0,mute=0,gone_ms=200,silent_ms=20000,"
    "max_rdma_bytes=1073741824";

class SrdWire : public ::testing::TestWithParam<SrdUnsolicited> {
 protected:
  SrdWire() {
    options_.verbs_library = options_.efa_library = FakeVerbs::library();
    options_.unsolicited = GetParam();
  }
  ~SrdWire() override {
    FakeVerbs::set(kAsBefore);
    EXPECT_EQ(FakeVerbs::held(), 0);
    EXPECT_EQ(FakeVerbs::count("overflows"), 0);
    EXPECT_EQ(FakeVerbs::count("refused"), refusals_);
  }

  std::unique_ptr<Transport> make(const TransportContext& context) const {
    const SrdLibraries libraries = load_srd_libraries(options_);
    return make_srd_port_transport(context, options_, libraries,
                                   open_port(*libraries.verbs, srd_port_wish(libraries, options_), context));
  }
  TestNetwork network(int32_t ranks = 2) const {
    return TestNetwork(ranks, [this](const TransportContext& context) { return make(context); });
  }

  SrdOptions options_;
  int64_t refusals_ = FakeVerbs::count("refused");  // as there should be at the end
};

// Numbers that are done, in any order: below first_missing() all are.
class Done {
 public:
  bool add(uint32_t number) {
    const bool is_new = done_.insert(number).second;
    while (done_.contains(missing_)) ++missing_;
    return is_new;
  }
  uint32_t first_missing() const { return missing_; }
  size_t size() const { return done_.size(); }

 private:
  std::set<uint32_t> done_;
  uint32_t missing_ = 0;
};

}  // namespace tilewire

#include "schedule/wire.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace tilewire {
namespace {

Command typical_write() {
  return {.kind = CommandKind::write, .peer = Rank{7}, .word = 99, .units = 512, .src_unit = 1000, .dst_unit = 2000};
}

// Every field of a write, as a way to set it and its number of bits.
struct Field {
  std::string name;
  int bits;
  uint64_t least;
  void (*set)(Command&, uint64_t);
};

const std::vector<Field>& write_fields() {
  static const std::vector<Field> fields = {
      {"peer", CommandBits::kPeer, 0, [](Command& c, uint64_t v) { c.peer = Rank{static_cast<int32_t>(v)}; }},
      {"word", CommandBits::kWord, 0, [](Command& c, uint64_t v) { c.word = static_cast<uint32_t>(v); }},
      {"units", CommandBits::kUnits, 1, [](Command& c, uint64_t v) { c.units = static_cast<uint32_t>(v); }},
      {"from_user", 1, 0, [](Command& c, uint64_t v) { c.from_user = v != 0; }},
      {"src_unit", CommandBits::kSrc, 0, [](Command& c, uint64_t v) { c.src_unit = v; }},
      {"dst_unit", CommandBits::kDst, 0, [](Command& c, uint64_t v) { c.dst_unit = v; }},
  };
  return fields;
}

void expect_round_trip(const Command& c, const std::string& what) {
  const PackedCommand packed = pack(c);
  EXPECT_EQ(packed.first & kLapBit, 0u) << what << " reaches into the lap bit";
  EXPECT_EQ(packed.second & kLapBit, 0u) << what << " reaches into the lap bit";
  EXPECT_TRUE(unpack(packed) == c) << what;
  const PackedCommand on_odd_lap{packed.first | kLapBit, packed.second | kLapBit};
  EXPECT_TRUE(unpack(on_odd_lap) == c) << what << ", with the lap bit set";
}

TEST(Wire, EveryFieldOfAWriteSurvivesAtItsEdges) {
  for (const Field& field : write_fields()) {
    const uint64_t max = (uint64_t{1} << field.bits) - 1;
    for (const uint64_t value :
         {field.least, field.least + 1, max / 2, max - std::min<uint64_t>(max, 3), max - 1, max}) {
      if (value < field.least) continue;
      Command c = typical_write();
      field.set(c, value);
      EXPECT_TRUE(fits(c)) << field.name << " = " << value;
      expect_round_trip(c, field.name + " = " + std::to_string(value));
    }
  }
}

TEST(Wire, OneFieldMoreThanItsMaximumDoesNotFit) {
  for (const Field& field : write_fields()) {
    if (field.bits == 1) continue;
    Command c = typical_write();
    field.set(c, uint64_t{1} << field.bits);
    EXPECT_FALSE(fits(c)) << field.name;
  }
  Command c = typical_write();
  c.units = 0;
  EXPECT_FALSE(fits(c)) << "units = 0";
  c = typical_write();
  c.peer = Rank{-1};
  EXPECT_FALSE(fits(c)) << "peer = -1";
}

TEST(Wire, AllFieldsAtTheirMaximumDoNotTouchEachOther) {
  Command all = typical_write();
  for (const Field& field : write_fields()) field.set(all, (uint64_t{1} << field.bits) - 1);
  expect_round_trip(all, "all at max");
  for (const Field& field : write_fields()) {
    Command c = all;
    field.set(c, field.least);
    expect_round_trip(c, "all at max but " + field.name);
  }
}

TEST(Wire, RandomWritesSurvive) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 20000; ++i) {
    Command c = typical_write();
    for (const Field& field : write_fields()) {
      const uint64_t value = random() & ((uint64_t{1} << field.bits) - 1);
      field.set(c, std::max(value, field.least));
    }
    ASSERT_TRUE(unpack(pack(c)) == c) << "round " << i;
  }
}

TEST(Wire, SignalsSurviveAtTheirEdges) {
  for (const int64_t peer : {int64_t{0}, CommandLimits::kRanks - 1}) {
    for (const int64_t word : {int64_t{0}, CommandLimits::kWords - 1}) {
      const Command c{
          .kind = CommandKind::signal, .peer = Rank{static_cast<int32_t>(peer)}, .word = static_cast<uint32_t>(word)};
      EXPECT_TRUE(fits(c));
      expect_round_trip(c, "signal");
    }
  }
  EXPECT_FALSE(fits({.kind = CommandKind::signal, .peer = Rank{CommandLimits::kRanks}}));
  EXPECT_FALSE(fits({.kind = CommandKind::signal, .peer = Rank{0}, .word = CommandLimits::kWords}));
}

TEST(Wire, CallEndKeepsItsEpoch) {
  const Epoch two_to_32 = Epoch{1} << 32;
  for (const Epoch e : {Epoch{0}, Epoch{1}, two_to_32 - 3, two_to_32 - 1, two_to_32, two_to_32 + 1,
                        CommandLimits::kEpochs - 3, CommandLimits::kEpochs - 1}) {
    const Command c{.kind = CommandKind::call_end, .peer = {}, .epoch = e};
    EXPECT_TRUE(fits(c)) << e;
    expect_round_trip(c, "call_end of " + std::to_string(e));
  }
  EXPECT_FALSE(fits({.kind = CommandKind::call_end, .peer = {}, .epoch = CommandLimits::kEpochs}));
}

TEST(Wire, ImmediateKeepsItsWordAtTheEdges) {
  for (const int64_t word : {int64_t{0}, int64_t{1}, CommandLimits::kWords - 3, CommandLimits::kWords - 1}) {
    const Immediate i = unpack_immediate(pack(Immediate{static_cast<uint32_t>(word), 77}), 77);
    EXPECT_EQ(i.word, static_cast<uint32_t>(word));
    EXPECT_EQ(i.epoch, 77u);
  }
}

// The narrow epoch must come back whole, whichever side of a carry the two epochs are on.
TEST(Wire, ImmediateKeepsEpochsAcrossEveryCarry) {
  constexpr Epoch kRange = Epoch{1} << kImmediateEpochBits;
  const Epoch edges[] = {kRange, 2 * kRange, 1000 * kRange, Epoch{1} << 32, Epoch{1} << 48};
  for (const Epoch edge : edges) {
    for (Epoch near = edge - 5; near <= edge + 5; ++near) {
      for (Epoch epoch = near - 4; epoch <= near + 4; ++epoch) {
        ASSERT_EQ(unpack_immediate(pack(Immediate{3, epoch}), near).epoch, epoch) << "near = " << near;
      }
      for (const Epoch distance : {kRange / 2 - 1, kRange / 4}) {
        ASSERT_EQ(unpack_immediate(pack(Immediate{3, near + distance}), near).epoch, near + distance) << near;
        if (near < distance) continue;
        ASSERT_EQ(unpack_immediate(pack(Immediate{3, near - distance}), near).epoch, near - distance) << near;
      }
    }
  }
}

TEST(Wire, ImmediateOfTheFirstEpochsDoesNotUnderflow) {
  for (Epoch near = 1; near < 4; ++near) {
    for (Epoch epoch = 0; epoch < 6; ++epoch) {
      EXPECT_EQ(unpack_immediate(pack(Immediate{0, epoch}), near).epoch, epoch) << "near = " << near;
    }
  }
}

}  // namespace
}  // namespace tilewire

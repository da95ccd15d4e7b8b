#include "schedule/role_list.h"

#include <gtest/gtest.h>

#include <string>

namespace tilewire {
namespace {

struct SilentRoles : RoleList<SilentRoles> {
  static constexpr RoleEntry kAll[] = {{"none"}, {"call", Ring::call}, {"compute"}, {"drain"}};
};
struct SendingRoles : RoleList<SendingRoles> {
  static constexpr RoleEntry kAll[] = {{"none"}, {"call", Ring::call}, {"send", Ring::send}, {"drain"}};
};

// All of it is known to the compiler, or a kernel could not have it.
static_assert(SilentRoles::number("none") == 0 && SilentRoles::number("drain") == 3);
static_assert(SendingRoles::ring(SendingRoles::number("send")) == Ring::send);
static_assert(SendingRoles::place("send").ring == static_cast<int32_t>(Ring::send));
static_assert(SendingRoles::place("drain").ring == -1);

TEST(RoleList, SaysWhichRingsSomebodyElseHasToEnd) {
  EXPECT_TRUE(SilentRoles::fills(static_cast<int32_t>(Ring::call)));
  EXPECT_FALSE(SilentRoles::fills(static_cast<int32_t>(Ring::send)));
  EXPECT_TRUE(SendingRoles::fills(static_cast<int32_t>(Ring::send)));
  EXPECT_FALSE(SendingRoles::fills(kRings));
}

TEST(RoleList, NumbersAreThePlacesOfTheNames) {
  static constexpr auto kNames = SendingRoles::names();
  ASSERT_EQ(kNames.size(), 4u);
  EXPECT_STREQ(kNames[SendingRoles::number("send")], "send");
}

TEST(RoleList, APlaceIsChangedInNothingButWhatIsSaid) {
  constexpr AgentPlace kPlace = SendingRoles::place("send").at(3).with({.load_ahead = 2}, 1);
  EXPECT_EQ(std::string(kPlace.role), "send");
  EXPECT_EQ(kPlace.worker, 3);
  EXPECT_TRUE(kPlace.has_cursors);
  EXPECT_EQ(kPlace.cursors.load_ahead, 2);
  EXPECT_EQ(kPlace.most_load_ahead, 1);
  EXPECT_EQ(kPlace.stage, kOpStage);
  EXPECT_FALSE(kPlace.reads_own_writes);
  EXPECT_TRUE(kPlace.reading_own_writes().reads_own_writes);
  EXPECT_EQ(kPlace.in_stage(kDrainStage).stage, kDrainStage);
}

}  // namespace
}  // namespace tilewire

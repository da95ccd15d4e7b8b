// Ranks that can use different transports take one together, or all hear why there is none.
#include "transport/transport_choice.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include "transport/error_text.h"

namespace tilewire {
namespace {

size_t number_of(std::string_view name) {
  for (size_t i = 0; i < transport_kinds().size(); ++i) {
    if (transport_kinds()[i].name == name) return i;
  }
  return SIZE_MAX;
}

// What ranks say of a list of kinds, none of which they can use but those named.
std::vector<std::string> able(const std::vector<std::string_view>& names) {
  std::vector<std::string> obstacles(transport_kinds().size(), "not here");
  for (const std::string_view name : names) obstacles[number_of(name)].clear();
  return obstacles;
}

TEST(TransportChoice, AutoTakesTheFirstThatEveryRankCanUse) {
  const Options options;
  EXPECT_EQ(agree_on_transport(options, {able({"emulated", "rc"}), able({"emulated", "rc"})}).name, "emulated");
  EXPECT_EQ(agree_on_transport(options, {able({"emulated", "rc"}), able({"rc"})}).name, "rc");
  EXPECT_EQ(agree_on_transport(options, {able({"emulated"}), able({"emulated", "rc"})}).name, "emulated");
}

TEST(TransportChoice, WithoutOneForAllEachKindIsSaidWithItsRanksAndAReason) {
  std::vector<std::string> broken = able({});
  broken[number_of("rc")] = "the port is down";
  const Error error = error_of([&] {
    agree_on_transport({}, {able({"rc"}), broken, able({"emulated"}), able({"emulated", "rc"})});
  });
  EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  EXPECT_SAYS(error, "emulated: not for 2 of 4 ranks; rank 0: not here");
  EXPECT_SAYS(error, "rc: not for 2 of 4 ranks; rank 1: the port is down");
}

TEST(TransportChoice, AnotherOneIsNeverTakenForTheOneThatIsNamed) {
  Options options;
  options.transport = "rc";
  EXPECT_EQ(agree_on_transport(options, {able({"emulated", "rc"}), able({"rc"})}).name, "rc");
  const Error error = error_of([&] { agree_on_transport(options, {able({"emulated"}), able({"emulated", "rc"})}); });
  EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  EXPECT_SAYS(error, "rc: not for 1 of 2 ranks; rank 0: not here");
  EXPECT_EQ(std::string(error.what()).find("emulated"), std::string::npos) << error.what();
  options.transport = "pigeon";
  EXPECT_SAYS(error_of([&] { agree_on_transport(options, {able({"rc"})}); }), "pigeon");
}

TEST(TransportChoice, OneHostsNetworkIsNotForSeveralAndHostMemorysNotForGpus) {
  Options options;
  options.verbs_library = "libno-such-verbs.so.1";
  const size_t emulated = number_of("emulated"), rc = number_of("rc");
  EXPECT_EQ(transport_obstacles(options, {.hosts = 1})[emulated], "");
  EXPECT_EQ(transport_obstacles(options, {.hosts = 1, .has_gpu_ranks = true, .has_wire = true})[emulated], "");
  EXPECT_NE(transport_obstacles(options, {.hosts = 1, .has_gpu_ranks = true})[emulated].find("run --virtual"),
            std::string::npos);
  EXPECT_EQ(transport_obstacles(options, {.hosts = 3})[emulated], "it joins ranks of one host, and these are on 3");
  EXPECT_NE(transport_obstacles(options, {.hosts = 3})[rc].find("libno-such-verbs.so.1"), std::string::npos);
  EXPECT_EQ(transport_obstacles(options, {.hosts = 3, .has_gpu_ranks = true, .gpu_obstacle = "no way to it"})[rc],
            "no way to it");
}

TEST(TransportChoice, OptionsThatContradictEachOtherRuleTheirTransportOutAlone) {
  Options options;
  options.rc_signal = "ordered";
  options.rc_channels = 2;
  const std::vector<std::string> obstacles = transport_obstacles(options, {});
  EXPECT_EQ(obstacles[number_of("emulated")], "");
  EXPECT_NE(obstacles[number_of("rc")].find("rc_channels = 2"), std::string::npos);
}

TEST(TransportChoice, WhatARankSaysComesBackAsItWas) {
  const TransportView view{.obstacles = able({"rc"}), .place = {.gpu = "0000:3f:00.0", .numa = 1}};
  const Bytes packed = view.pack();
  EXPECT_EQ(TransportView::unpack(packed).obstacles, view.obstacles);
  EXPECT_EQ(TransportView::unpack(packed).place, view.place);
  EXPECT_THROW(TransportView::unpack(std::span(packed).first(5)), Error);
}

}  // namespace
}  // namespace tilewire

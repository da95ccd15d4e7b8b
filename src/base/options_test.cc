#include "base/options.h"

#include "base/number_text.h"
#include "base/option_table.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <cctype>
#include <set>

namespace tilewire {
namespace {

std::string refusal_of(const Environment& environment) {
  try {
    Options::parse(environment);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return "accepted";
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(Options, DefaultsAreValid) {
  const Options options = Options::parse({});
  EXPECT_EQ(options.transport, "auto");
  EXPECT_EQ(options.deadline_s, 600);
  EXPECT_EQ(options.arena_reserve_bytes, int64_t{64} << 30);
  EXPECT_EQ(options.ring_entries, 1024);
}

TEST(Options, VariablesSetTheirFields) {
  const Options options = Options::parse({{"TILEWIRE_DEADLINE_S", "0.5"},
                                          {"TILEWIRE_ARENA_INITIAL_BYTES", "3MiB"},
                                          {"TILEWIRE_FIRST_EPOCH", "4294967293"},
                                          {"TILEWIRE_EMULATED_PERSONALITY", "srd"},
                                          {"PATH", "/bin"}});
  EXPECT_EQ(options.deadline_s, 0.5);
  EXPECT_EQ(options.arena_initial_bytes, int64_t{3} << 20);
  EXPECT_EQ(options.first_epoch, 4294967293);
  EXPECT_EQ(options.emulated_personality, "srd");
}

TEST(Options, AMisspeltVariableIsRefusedWithTheNearestName) {
  const std::string text = refusal_of({{"TILEWIRE_DEADLIN_S", "5"}});
  EXPECT_TRUE(has(text, "'TILEWIRE_DEADLIN_S'")) << text;
  EXPECT_TRUE(has(text, "nearest known name is TILEWIRE_DEADLINE_S")) << text;
  EXPECT_TRUE(has(refusal_of({{"TILEWIRE_Transport", "rc"}}), "TILEWIRE_TRANSPORT"));
  EXPECT_NE(refusal_of({{"TILEWIRE_", "1"}}), "accepted");
}

// A name of another thing is no help, however few letters both have.
TEST(Options, OnlyANameThatIsNearIsProposed) {
  for (const char* name : {"TILEWIRE_FOO", "TILEWIRE_", "TILEWIRE_X", "TILEWIRE_WEATHER_OF_TODAY"}) {
    const std::string text = refusal_of({{name, "5"}});
    EXPECT_TRUE(has(text, std::string("'") + name + "'")) << text;
    EXPECT_FALSE(has(text, "nearest")) << text;
    EXPECT_TRUE(has(text, "docs/options.md")) << text;
  }
  EXPECT_TRUE(has(refusal_of({{"TILEWIRE_JOBS", "5"}}), "nearest known name is TILEWIRE_JOB"));
  Options options;
  try {
    options.set("ring_entires", "32");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_TRUE(has(error.what(), "nearest known name is ring_entries")) << error.what();
  }
}

TEST(Options, ABadValueNamesVariableValueAndWhatIsAllowed) {
  const std::string text = refusal_of({{"TILEWIRE_RING_ENTRIES", "1000"}});
  for (const char* part : {"ring_entries", "'1000'", "a power of two, 16 to 1048576", "TILEWIRE_RING_ENTRIES"}) {
    EXPECT_TRUE(has(text, part)) << part << " is not in: " << text;
  }
  EXPECT_TRUE(has(refusal_of({{"TILEWIRE_LOG_LEVEL", "loud"}}), "error, warn, info, debug"));
}

TEST(Options, NumbersAreReadWholeOrNotAtAll) {
  for (const char* value : {"12x", " 12", "+12", "0x10", "1e3", "", "99999999999999999999", "-5", "1.5"}) {
    const Environment environment{{"TILEWIRE_SPIN_US", value}};
    if (*value == '\0') {
      EXPECT_EQ(Options::parse(environment).spin_us, Options{}.spin_us);
    } else {
      EXPECT_NE(refusal_of(environment), "accepted") << value;
    }
  }
  for (const char* value : {"nan", "inf", "1e999", "5s"}) {
    EXPECT_NE(refusal_of({{"TILEWIRE_DEADLINE_S", value}}), "accepted") << value;
  }
  for (const char* value : {"9223372036854775807KiB", "5000", "KiB", "4kib", "2MiBGiB"}) {
    EXPECT_NE(refusal_of({{"TILEWIRE_ARENA_INITIAL_BYTES", value}}), "accepted") << value;
  }
  const auto names_units = [](const char* value) {
    return refusal_of({{"TILEWIRE_ARENA_INITIAL_BYTES", value}}).find("KiB, MiB, GiB or TiB") != std::string::npos;
  };
  EXPECT_TRUE(names_units("1G"));
  EXPECT_FALSE(names_units("5000")) << "what is wrong is the multiple";
}

TEST(Options, RealNumbersAreFiniteWhateverTheRange) {
  for (const char* value : {"nan", "-nan", "inf", "-inf"}) EXPECT_FALSE(parse_real(value).has_value()) << value;
  EXPECT_EQ(parse_real("1e3"), 1000);
}

TEST(Options, ATextThatWouldBreakALineIsRefused) {
  EXPECT_NE(refusal_of({{"TILEWIRE_TRACE_FILE", "a\nb"}}), "accepted");
  EXPECT_NE(refusal_of({{"TILEWIRE_JOB", "one\nmax_ranks=7"}}), "accepted");
}

TEST(Options, ValuesThatContradictEachOtherAreRefused) {
  EXPECT_TRUE(has(refusal_of({{"TILEWIRE_RANK", "0"}}), "set both or neither"));
  EXPECT_TRUE(has(refusal_of({{"TILEWIRE_RANK", "4"}, {"TILEWIRE_WORLD_SIZE", "4"}}), "must be 0 to world_size - 1"));
  EXPECT_TRUE(has(refusal_of({{"TILEWIRE_RANK", "0"}, {"TILEWIRE_WORLD_SIZE", "4"}, {"TILEWIRE_LAYOUT", "3,2"}}),
                  "(sum 5), world_size = 4"));
  EXPECT_TRUE(has(refusal_of({{"TILEWIRE_ARENA_RESERVE_BYTES", "2MiB"}}), "starts larger"));
  EXPECT_TRUE(has(refusal_of({{"TILEWIRE_DEATH_S", "0.5"}}), "at least two heartbeats"));
  EXPECT_TRUE(has(refusal_of({{"TILEWIRE_RANK", "0"}, {"TILEWIRE_WORLD_SIZE", "5000"}}), "at most max_ranks"));
}

TEST(Options, ASecretIsNeverShown) {
  Options options;
  options.set("secret", "a-very-secret-word-indeed");
  EXPECT_EQ(options.get("secret"), "(set)");
  EXPECT_FALSE(has(options.to_text(), "very-secret"));
  EXPECT_FALSE(has(options.agreement_text(), "secret"));
  const std::string text = refusal_of({{"TILEWIRE_SECRET", "too-short-one"}});
  EXPECT_FALSE(has(text, "too-short-one")) << text;
  EXPECT_TRUE(has(text, "at least 16 characters")) << text;
}

TEST(Options, ARefusedValueLeavesTheOptionsAsTheyWere) {
  Options options;
  EXPECT_THROW(options.set("ring_entries", "3"), Error);
  EXPECT_EQ(options.ring_entries, 1024);
  EXPECT_THROW(options.set("ring_entires", "32"), Error);
}

TEST(Options, FieldsSetByHandAreCheckedToo) {
  Options options;
  options.workers = -1;
  EXPECT_THROW(options.validate(), Error);
}

TEST(Options, TheDifferenceNamesOptionAndBothValues) {
  Options mine;
  Options theirs;
  theirs.set("arena_reserve_bytes", "32GiB");
  theirs.deadline_s = 1;  // each rank may have its own
  EXPECT_EQ(agreement_difference(mine.agreement_text(), theirs.agreement_text()),
            "arena_reserve_bytes is 64GiB here and 32GiB there");
  EXPECT_EQ(agreement_difference(mine.agreement_text(), mine.agreement_text()), "");
  EXPECT_EQ(agreement_difference("a=1\n", "b=2\n"), "a is 1 here and unknown there; b is unknown here and 2 there");
  EXPECT_EQ(agreement_difference("x", "="), " is unknown here and unset there; x is unset here and unknown there");
}

TEST(Options, EveryOptionThatAgreesAppearsInTheComparedText) {
  for (const OptionInfo& option : option_table()) {
    const bool compared = has("\n" + Options{}.agreement_text(), "\n" + option.name + "=");
    EXPECT_EQ(compared, option.scope == OptionScope::agree) << option.name;
  }
}

TEST(Options, EveryDefaultIsReadBackFromItsText) {
  std::set<std::string> names;
  for (const OptionInfo& option : option_table()) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name << " is there twice";
    Options options;
    const std::string text = option_text(option, options);
    assign_option(option, text, options);
    EXPECT_EQ(option_text(option, options), text) << option.name;
    EXPECT_FALSE(option.meaning.empty());
  }
}

TEST(Options, CountsAreReadOrRefused) {
  EXPECT_EQ(parse_counts("3,1"), (std::vector<int32_t>{3, 1}));
  EXPECT_TRUE(parse_counts("").empty());
  for (const char* text : {",", "3,", ",3", "0", "3,-1", "3;1", "3, 1", "1048577"}) {
    EXPECT_THROW(parse_counts(text), Error) << text;
  }
}

TEST(Options, NearestNameCountsEdits) {
  EXPECT_EQ(nearest_name("rnak", {"rank", "job"}), "rank");
  EXPECT_EQ(nearest_name("anything", {}), "");
  EXPECT_EQ(nearest_name("deadlineabc", {"deadline"}), "deadline");
  EXPECT_EQ(nearest_name("deadlineabcd", {"deadline"}), "");
  EXPECT_EQ(nearest_name("foo", {"job"}), "");
}

TEST(Options, TheProcessEnvironmentIsReadWhole) {
  const Environment environment = process_environment();
  EXPECT_FALSE(environment.empty());
  EXPECT_TRUE(environment.contains("PATH"));
}

}  // namespace
}  // namespace tilewire

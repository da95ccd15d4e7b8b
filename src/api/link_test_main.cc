// The link test as a program: one process a rank, started as any job is. Rank 0 prints the report, or writes it to FILE.
// Ends with 1 when a message was not whole, 2 when the test failed.
#include <tilewire/error.h>
#include <tilewire/link_test.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>

namespace {

constexpr const char* kUsage = "usage: tilewire_link_test [--seconds S] [--messages N] [--report FILE]\n";

template <class Number>
bool read(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

// Whether that option takes that value.
bool take(std::string_view name, const char* value, tilewire::LinkTest& test) {
  if (name == "--seconds") return read(value, test.seconds);
  if (name == "--messages") return read(value, test.messages);
  test.report = value;
  return name == "--report" && !test.report.empty();
}

int refuse(const char* what, const char* argument) {
  std::fprintf(stderr, "tilewire_link_test: %s %s\n%s", what, argument, kUsage);
  return 2;
}

int run(const tilewire::LinkTest& test) {
  const tilewire::LinkReport report = tilewire::run_link_test(tilewire::Options::from_environment(), test);
  const bool is_printed = report.rank == 0 && (test.report.empty() || !report.unwritten.empty());
  if (is_printed && (std::printf("%s\n", report.json.c_str()) < 0 || std::fflush(stdout) != 0)) {
    std::fprintf(stderr, "tilewire_link_test: the report could not be printed: %s\n", std::strerror(errno));
    return 2;
  }
  if (!report.unwritten.empty()) {
    std::fprintf(stderr, "tilewire_link_test: the report could not be written: %s\n", report.unwritten.c_str());
    return 2;
  }
  if (report.wrong_messages == 0) return 0;
  std::fprintf(stderr, "tilewire_link_test: %llu messages were not whole when they were announced\n",
               static_cast<unsigned long long>(report.wrong_messages));
  return 1;
}

}  // namespace

int main(int count, char** arguments) {
  tilewire::LinkTest test;
  for (int i = 1; i < count; i += 2) {
    const std::string_view name = arguments[i];
    if (name == "--help" || name == "-h") return std::fputs(kUsage, stdout) < 0 ? 2 : 0;
    if (name != "--seconds" && name != "--messages" && name != "--report") return refuse("unknown", arguments[i]);
    if (i + 1 == count) return refuse("a value is missing behind", arguments[i]);
    if (!take(name, arguments[i + 1], test))
      return refuse((std::string(name) + " cannot be").c_str(), arguments[i + 1]);
  }
  try {
    return run(test);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tilewire_link_test: %s\n", error.what());
    return 2;
  }
}

// The link test as a program: one process a rank, started as any job is.
//   tilewire_link_test [--seconds S] [--messages N] [--report FILE]
// Rank 0 prints the report, or writes it to FILE. Ends with 1 when a message was not whole, 2 when the test failed.
#include <tilewire/error.h>
#include <tilewire/link_test.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

namespace {

int usage() {
  std::fprintf(stderr, "usage: tilewire_link_test [--seconds S] [--messages N] [--report FILE]\n");
  return 2;
}

bool are_all_whole(const std::string& report) {
  const nlohmann::json parsed = nlohmann::json::parse(report);
  for (const auto& link : parsed.at("links")) {
    if (link.value("wrong_messages", 0) != 0) return false;
  }
  return true;
}

}  // namespace

int main(int count, char** arguments) {
  tilewire::LinkTest test;
  std::string file;
  for (int i = 1; i < count; i += 2) {
    const std::string name = arguments[i];
    if (i + 1 == count) return usage();
    char* end = nullptr;
    if (name == "--seconds") {
      test.seconds = std::strtod(arguments[i + 1], &end);
    } else if (name == "--messages") {
      test.messages = std::strtoull(arguments[i + 1], &end, 10);
    } else if (name == "--report") {
      file = arguments[i + 1];
      continue;
    }
    if (end == nullptr || end == arguments[i + 1] || *end != '\0') return usage();
  }
  try {
    const tilewire::LinkReport report = tilewire::run_link_test(tilewire::Options::from_environment(), test);
    if (report.rank == 0 && file.empty()) std::cout << report.json << '\n';
    if (report.rank == 0 && !file.empty()) std::ofstream(file) << report.json << '\n';
    return are_all_whole(report.json) ? 0 : 1;
  } catch (const tilewire::Error& error) {
    std::fprintf(stderr, "tilewire_link_test: %s\n", error.what());
    return 2;
  }
}

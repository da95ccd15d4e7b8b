// Prints docs/options.md.
#include "base/options_page.h"

#include <cstdio>

int main() {
  const std::string page = tilewire::options_page();
  return std::fwrite(page.data(), 1, page.size(), stdout) == page.size() ? 0 : 1;
}

#include "transport/nics/near_processors.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"

namespace tilewire {

std::vector<int> allowed_processors() {
  cpu_set_t set;
  std::vector<int> processors;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return processors;  // a machine of more than CPU_SETSIZE
  for (int p = 0; p < CPU_SETSIZE; ++p) {
    if (CPU_ISSET(p, &set)) processors.push_back(p);
  }
  return processors;
}

bool stay_near(const std::vector<int>& near, std::string_view what) noexcept {
  if (near.empty()) return false;
  try {
    const std::vector<int> allowed = allowed_processors();
    cpu_set_t set;
    CPU_ZERO(&set);
    bool has_any = false, is_less = false;
    for (const int p : allowed) {
      const bool is_near = std::find(near.begin(), near.end(), p) != near.end();
      if (is_near) CPU_SET(p, &set);
      has_any |= is_near;
      is_less |= !is_near;
    }
    if (!has_any) {
      log_once("near processors", "{} runs far from its NIC: none of the processors near it is allowed here", what);
      return false;
    }
    if (!is_less) return false;  // all are near
    const int error = pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
    if (error != 0) log_once("near processors", "{} cannot stay near its NIC: {}", what, std::strerror(error));
    return error == 0;
  } catch (...) {
    return false;
  }
}

}  // namespace tilewire

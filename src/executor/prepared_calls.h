// What was made ready once for all calls of a problem and a plan, as far as there is room for it: what was not asked for
// for the longest time goes. By one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/call_text.h"

namespace tilewire {

// B: a back end of call_cycle.h.
template <class B>
struct Prepared {
  typename B::Op::Problem problem;
  std::string variant, given_plan;
  typename B::Plan plan;
  std::string plan_json;  // of the plan
  CallTextRef agreed;     // what a mismatch quotes of each rank: all of it has to be equal
  uint64_t agreed_hash = 0;
  typename B::Ready ready;

  int64_t bytes() const {
    if constexpr (requires { ready.bytes(); }) {
      return ready.bytes();
    } else {
      return 0;
    }
  }
};

template <class B>
class PreparedCalls {
 public:
  // nullptr: there is none of that name.
  std::shared_ptr<Prepared<B>> find(const std::string& name) {
    const auto found = places_.find(name);
    if (found == places_.end()) return nullptr;
    calls_.splice(calls_.end(), calls_, found->second);
    return found->second->prepared;
  }
  // Under names of which one is new at least; what was added before keeps the names that it has.
  void add(std::vector<std::string> names, std::shared_ptr<Prepared<B>> prepared) {
    const auto at = calls_.insert(calls_.end(), {std::move(prepared), std::move(names)});
    for (const std::string& name : at->names) places_.emplace(name, at);
  }
  void drop_oldest() {
    for (const std::string& name : calls_.front().names) {
      const auto found = places_.find(name);
      if (found != places_.end() && found->second == calls_.begin()) places_.erase(found);
    }
    calls_.pop_front();
  }
  bool is_empty() const { return calls_.empty(); }
  size_t names() const { return places_.size(); }
  int64_t bytes() const {
    int64_t sum = 0;
    for (const Entry& entry : calls_) sum += entry.prepared->bytes();
    return sum;
  }

 private:
  struct Entry {
    std::shared_ptr<Prepared<B>> prepared;
    std::vector<std::string> names;
  };
  std::list<Entry> calls_;  // the one that was asked for last comes last
  std::map<std::string, typename std::list<Entry>::iterator> places_;
};

}  // namespace tilewire

// For an op whose problem depends on numbers that only the other ranks know.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/call.h"

namespace tilewire {

class CountExchange {
 public:
  // `advice`: as a CallText has it.
  CountExchange(Call& call, const char* op, const char* advice) : call_(&call), op_(op), advice_(advice) {}
  // Where nothing can be exchanged: in a graph. exchange() then throws Error(invalid_argument).
  explicit CountExchange(const char* op) : op_(op) {}

  // One number from every rank, by rank: host only, over the control connection. The first one begins the call, under
  // `description` behind the op's name.
  std::vector<int64_t> exchange(const char* what, int64_t mine, const std::string& description);
  // A list from every rank, each as long as it likes.
  std::vector<std::vector<int64_t>> exchange_lists(const char* what, const std::vector<int64_t>& mine,
                                                   const std::string& description);
  bool has_begun() const { return has_begun_; }

 private:
  void begin(const char* what, const std::string& description);

  Call* call_ = nullptr;
  const char* op_;
  const char* advice_ = "";
  bool has_begun_ = false;
};

}  // namespace tilewire

// What kernels of GPU ranks leave in their fault record, as errors: the numbers of a record get their names here.
#pragma once

#include <tilewire/error.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/call_text.h"
#include "base/ids.h"
#include "device/sync/call_remark.h"
#include "device/sync/fault_record.h"
#include "schedule/arena_layout.h"

namespace tilewire {

// Of the kernels of one op; all of static storage.
struct KernelNames {
  const char* op = "a kernel";
  const char* mismatch_advice = "";              // of calls whose text is not known any more
  std::span<const char* const> roles{};          // by the number that a record has
  const char* const* family_names = nullptr;     // kWordFamilies of them
  Error (*remark)(const CallRemark&) = nullptr;  // what a remark of the op's kernel says; null: they make none
};

// Thread-safety: all from any thread.
class KernelFaults {
 public:
  KernelFaults(Rank rank, double deadline_s) : rank_(rank), deadline_s_(deadline_s) {}

  // The number of the op in its records.
  int32_t add_op(const KernelNames& names);
  // What calls of this hash are, for mismatches: of what ranks have agreed on, and of calls that are captured, whose graphs
  // may be replayed for ever. More than call_cycle.h has all operations keep.
  void add_text(uint64_t agreed_hash, CallTextRef text);
  // The same of a call with parts of its own, such as documents, in front of each such call: more than can be in flight.
  void add_call_text(uint64_t agreed_hash, CallTextRef text);
  static constexpr size_t kMostTexts = 8192, kMostCallTexts = 256;

  // Of a role of an op, by their numbers; of static storage.
  const char* role_name(int32_t op, int32_t role) const;

  // The error that all ranks get: what failed, where, which word, what was expected and seen.
  Error error(const FaultRecord& record, const FlagLayout& flags) const;
  // What this rank runs, where a kernel has found that the peer runs something that this rank never called: the peer knows
  // what `seen` is the hash of.
  std::optional<CallText> own_side(const FaultRecord& record) const;
  // What the caller of this rank gets for a remark.
  Error error(const CallRemark& remark) const;

 private:
  // The latest ones.
  class Texts {
   public:
    explicit Texts(size_t most) : most_(most) {}
    void add(uint64_t hash, CallTextRef text);
    CallTextRef find(uint64_t hash) const;  // nullptr: it is not there

   private:
    using Row = std::list<std::pair<uint64_t, CallTextRef>>;
    size_t most_;
    Row row_;  // the oldest first
    std::map<uint64_t, Row::iterator> places_;
  };

  CallTextRef known_text(uint64_t agreed_hash) const;
  CallText text_of(uint64_t agreed_hash, const KernelNames& names) const;
  std::string mismatch(const FaultRecord& record, const KernelNames& names) const;

  Rank rank_;
  double deadline_s_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<KernelNames> ops_;
  Texts texts_{kMostTexts}, call_texts_{kMostCallTexts};
};

// Looks at a record, some hundred times a second, from construction to destruction and then once more, and tells what
// it finds, once.
class FaultWatch {
 public:
  FaultWatch(const FaultRecord& record, std::function<void(const FaultRecord&)> tell);
  ~FaultWatch();
  FaultWatch(const FaultWatch&) = delete;
  FaultWatch& operator=(const FaultWatch&) = delete;

 private:
  bool look();
  void watch();

  const FaultRecord& record_;
  std::function<void(const FaultRecord&)> tell_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool is_ending_ = false;
  std::thread thread_;
};

// Whether the record is complete; then its fields may be read.
bool has_fault(const FaultRecord& record);

}  // namespace tilewire

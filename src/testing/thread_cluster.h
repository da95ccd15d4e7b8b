// A cluster whose ranks are threads of this process, for tests under race detectors and debuggers: the same sessions,
// proxies and transports as between processes, over plain memory.
#pragma once

#include <tilewire/options.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "executor/session.h"
#include "transport/bootstrap/key_value_store.h"

namespace tilewire {

// A store within the process.
class ThreadStore final : public KeyValueStore {
 public:
  void set(const std::string& key, const Bytes& value) override;
  Bytes get(const std::string& key, SteadyTime deadline) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Bytes> values_;
};

// What came of one rank: "" or the text of the error it ended with.
struct RankOutcome {
  std::string error;
  ErrorKind kind = ErrorKind::internal;
  std::string fault;                  // the script of the rank's transport, and
  std::vector<uint64_t> faults_come;  // how often each of its faults came while the body ran
};

// Runs `body` on every rank of the layout, each with a session of its own, and closes them. `adjust` may change a
// rank's options before it joins. Returns when all ranks have returned.
std::vector<RankOutcome> run_thread_cluster(const std::vector<int32_t>& ranks_per_node, const Options& options,
                                            const std::function<void(Session&)>& body,
                                            const std::function<void(Rank, Options&)>& adjust = {});

// The text of the first rank that failed, "" when none did.
std::string first_error(const std::vector<RankOutcome>& outcomes);

}  // namespace tilewire

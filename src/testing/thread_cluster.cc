#include "testing/thread_cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>
#include <thread>

#include "base/log.h"

namespace tilewire {

namespace {

// When the body has ended, whichever way.
struct NotedFaults {
  Session& session;
  RankOutcome& outcome;
  ~NotedFaults() {
    if (session.transport() != nullptr) outcome.faults_come = session.transport()->faults_come();
  }
};

}  // namespace

void ThreadStore::set(const std::string& key, const Bytes& value) {
  const std::lock_guard lock(mutex_);
  values_[key] = value;
  changed_.notify_all();
}

Bytes ThreadStore::get(const std::string& key, SteadyTime deadline) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, deadline, [&] { return values_.count(key) != 0; })) {
    throw Error(ErrorKind::deadline, {.what = "no such key in the store in time", .values = key});
  }
  return values_[key];
}

std::vector<RankOutcome> run_thread_cluster(const std::vector<int32_t>& ranks_per_node, const Options& options,
                                            const std::function<void(Session&)>& body,
                                            const std::function<void(Rank, Options&)>& adjust) {
  const int32_t ranks = std::accumulate(ranks_per_node.begin(), ranks_per_node.end(), 0);
  std::vector<Node> nodes;
  for (size_t n = 0; n < ranks_per_node.size(); ++n) {
    nodes.insert(nodes.end(), ranks_per_node[n], Node{static_cast<int32_t>(n)});
  }
  ThreadArenaGroup arenas(nodes, {.rank = Rank{0},
                                  .layout = arena_layout(ranks, options),
                                  .half_bytes = options.arena_initial_bytes,
                                  .user_bytes = 0});
  ThreadStore store;
  std::vector<RankOutcome> outcomes(ranks);
  const auto run_rank = [&](int32_t r) {
    set_thread_log_rank(Rank{r});
    try {
      SessionSetup setup{.options = options, .store = &store, .threads = ThreadRanks{&arenas}};
      setup.options.rank = r;
      setup.options.world_size = ranks;
      setup.options.layout = fmt::format("{}", fmt::join(ranks_per_node, ","));
      if (adjust) adjust(Rank{r}, setup.options);
      outcomes[r].fault = setup.options.fault;
      const std::unique_ptr<Session> session = Session::create(setup);
      const NotedFaults noted{*session, outcomes[r]};
      body(*session);
      session->close();
    } catch (const Error& error) {
      outcomes[r].error = error.what();
      outcomes[r].kind = error.kind();
    } catch (const std::exception& error) {
      outcomes[r].error = error.what();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(ranks));
  for (int32_t r = 0; r < ranks; ++r) threads.emplace_back(run_rank, r);
  for (std::thread& t : threads) t.join();
  return outcomes;
}

std::string first_error(const std::vector<RankOutcome>& outcomes) {
  for (size_t r = 0; r < outcomes.size(); ++r) {
    if (!outcomes[r].error.empty()) return fmt::format("rank {}: {}", r, outcomes[r].error);
  }
  return "";
}

}  // namespace tilewire

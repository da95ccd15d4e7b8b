// GPU ranks as processes of their own on one GPU: sessions, arenas that they map from one another, and calls of the fused
// kernel, as a program of a user makes them. The ranks share the GPU's SMs under a private MPS daemon; where they are of
// several nodes, a wire process joins those.
//   gpu_ranks_test [PART OF A SCENARIO'S NAME]
//   tilewire run --virtual 2x2 gpu_ranks_test rank "nodes 2x2, lives"
// Without an MPS daemon only one rank alone can be tested. One whose folder is set in the environment is used as it is,
// and then nobody is killed.
#include <netinet/in.h>
#include <sys/socket.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <set>

#include "device/tile/tile_launch.cuh"
#include "executor/device_call.h"
#include "gpu_program.cuh"
#include "mps_daemon.h"
#include "ops/ag_gemm/device_op.h"
#include "rank_case.h"
#include "spawned_program.h"
#include "wire_process.h"

namespace tilewire {
namespace {

constexpr int kUnwritten = 0x11;  // no NaN
constexpr unsigned kRankLimitS = 80;
constexpr std::chrono::seconds kPatience{15};  // for what should take milliseconds
constexpr const char* kWirePid = "TEST_WIRE_PID";
constexpr int32_t kHeldSms = 8, kHeldS = 8;  // by another program

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// --- A rank ---

std::vector<int64_t> uneven_rows(int32_t ranks) {
  std::vector<int64_t> rows;
  rows.reserve(static_cast<size_t>(ranks));
  for (int32_t r = 0; r < ranks; ++r)
    rows.push_back(std::vector<int64_t>{300, 0, 217, 130}[static_cast<size_t>(r % 4)]);
  return rows;
}

std::vector<RankShape> shapes(int32_t ranks) {
  const auto even = [ranks](int64_t rows) { return std::vector<int64_t>(static_cast<size_t>(ranks), rows); };
  return {{.name = "even", .rows = even(192), .k = 256, .cols = {320}},
          {.name = "uneven, ragged, bias", .rows = uneven_rows(ranks), .k = 136, .cols = {333}, .has_bias = true},
          {.name = "two weights, fp16, [K, N]",
           .rows = even(64),
           .k = 72,
           .cols = {96, 40},
           .type = DataType::fp16,
           .is_b_n_major = true},
          {.name = "no rows", .rows = even(0), .k = 64, .cols = {64}},
          {.name = "one row", .rows = even(1), .k = 8, .cols = {8}},
          {.name = "arenas grow", .rows = even(700), .k = 1024, .cols = {128}}};
}

class Stream {
 public:
  Stream() { check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  operator cudaStream_t() const { return stream_; }
  // False, and a claim that is not true, when it takes too long.
  bool finish() const {
    const auto begin = Clock::now();
    for (;;) {
      const cudaError_t result = cudaStreamQuery(stream_);
      if (result == cudaSuccess) return true;
      if (result != cudaErrorNotReady) {
        std::printf("  the stream ended with: %s\n", cudaGetErrorString(result));
        return false;
      }
      if (Clock::now() - begin > kPatience) break;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    expect(false, "what is in a stream ends");
    return false;
  }

 private:
  cudaStream_t stream_ = nullptr;
};

// A communicator with the calls of the op, and the session's end before that of the kernels.
class Joined {
 public:
  explicit Joined(const Options& options)
      : session_(Session::create(
            {.options = options, .threads = {}, .roll_call = hold_roll_call, .gpu_timer = read_global_timer})),
        calls_(*session_) {}
  ~Joined() { session_->close(); }
  Joined(const Joined&) = delete;
  Joined& operator=(const Joined&) = delete;

  Session& session() { return *session_; }
  int32_t me() const { return session_->rank().value; }
  int32_t ranks() const { return session_->topology().ranks; }
  void call(const RankCase& data, const Stream& stream) { call(data.arguments(), stream); }
  void call(const ag_gemm::Arguments& arguments, const Stream& stream) {
    calls_.run(arguments, static_cast<cudaStream_t>(stream));
  }
  void meet() { session_->control().barrier("test", deadline_in(std::chrono::seconds(30))); }

 private:
  std::unique_ptr<Session> session_;
  DeviceCalls<ag_gemm::DeviceOp> calls_;
};

// What `f` threw.
std::optional<Error> error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  return std::nullopt;
}

// The communicator's end, as check() tells it.
void expect_end(Joined& joined, ErrorKind kind, const std::vector<std::string>& parts, Clock::time_point begin) {
  std::optional<Error> error;
  while (!error && Clock::now() - begin < kPatience) {
    error = error_of([&] { joined.session().check(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  expect(error.has_value(), "the communicator dies");
  if (!error) return;
  std::printf("  rank %d after %.1f ms: %s\n", joined.me(), ms_since(begin), error->what());
  expect(error->kind() == kind, std::string("it is a ") + to_string(kind));
  for (const std::string& part : parts) {
    expect(std::string(error->what()).find(part) != std::string::npos, "the error says: " + part);
  }
  const auto again = error_of([&] { joined.session().throw_if_dead(); });
  expect(again && std::string(again->what()) == error->what(), "and says it again");
}

void call_once(Joined& joined, RankCase& data, const Stream& stream, int64_t salt) {
  data.set_salt(salt);
  data.fill_results(stream);
  data.enqueue_inputs(stream);
  joined.call(data, stream);
  stream.finish();
  joined.session().check();
}

void test_shapes(Joined& joined) {
  const Stream stream;
  for (const RankShape& shape : shapes(joined.ranks())) {
    RankCase data(shape, joined.me());
    for (int64_t salt = 1; salt <= 3; ++salt) {
      call_once(joined, data, stream, salt);
      expect(data.count_wrong() == 0, shape.name);
    }
    if (joined.me() == 0) std::printf("  %s\n", shape.name.c_str());
  }
}

// 200 calls behind each other, now on one stream and now on another; the ranks run apart from one another.
void test_two_streams(Joined& joined) {
  const Stream one, other;
  RankCase data(shapes(joined.ranks())[0], joined.me());
  call_once(joined, data, one, 1);
  const auto begin = Clock::now();
  constexpr int kCalls = 200;
  for (int i = 0; i < kCalls; ++i) joined.call(data, i % 3 == 0 ? other : one);
  const double enqueued_ms = ms_since(begin);
  one.finish();
  other.finish();
  joined.session().check();
  expect(data.count_wrong() == 0, "calls on two streams");
  if (joined.me() == 0) {
    std::printf("  %d calls on two streams: %.1f us each to enqueue, %.1f us each to run\n", kCalls,
                enqueued_ms * 1e3 / kCalls, ms_since(begin) * 1e3 / kCalls);
  }
}

void test_graph(Joined& joined) {
  const Stream stream;
  RankCase data(shapes(joined.ranks())[0], joined.me());
  call_once(joined, data, stream, 1);
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "beginning a capture");
  data.enqueue_inputs(stream);
  joined.call(data, stream);
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamEndCapture(stream, &graph), "ending a capture");
  cudaGraphExec_t replay = nullptr;
  check_cuda(cudaGraphInstantiate(&replay, graph, 0), "making a graph");
  int64_t wrong = 0;
  for (int64_t salt = 2; salt < 12; ++salt) {
    data.set_salt(salt);
    data.fill_results(stream);
    check_cuda(cudaGraphLaunch(replay, stream), "launching a graph");
    if (!stream.finish()) break;
    joined.session().check();
    wrong += data.count_wrong();
  }
  expect(wrong == 0, "replays of a graph, inputs changed in place");
  call_once(joined, data, stream, 20);
  expect(data.count_wrong() == 0, "a call behind replays");
  for (int i = 0; i < 500; ++i) check_cuda(cudaGraphLaunch(replay, stream), "launching a graph");
  stream.finish();
  joined.session().check();
  expect(data.count_wrong() == 0, "500 replays in a row");
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);

  const RankCase fresh(
      {.name = "", .rows = std::vector<int64_t>(static_cast<size_t>(joined.ranks()), 8), .k = 64, .cols = {24}},
      joined.me());
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "beginning a capture");
  const auto error = error_of([&] { joined.call(fresh, stream); });
  cudaStreamEndCapture(stream, &graph);
  if (graph != nullptr) cudaGraphDestroy(graph);
  expect(error && error->kind() == ErrorKind::invalid_argument &&
             std::string(error->what()).find("before the capture") != std::string::npos,
         "a capture of a new shape is refused");
}

ag_gemm::Arguments misaligned(const RankCase& data) {
  ag_gemm::Arguments arguments = data.arguments();
  arguments.a.data = static_cast<std::byte*>(arguments.a.data) + 2;
  return arguments;
}

void expect_own_refusal(Joined& joined, const RankCase& data, const Stream& stream) {
  const auto error = error_of([&] { joined.call(misaligned(data), stream); });
  expect(error && error->kind() == ErrorKind::invalid_argument &&
             std::string(error->what()).find("a is misaligned") != std::string::npos,
         "a misaligned operand is refused by name");
}

void test_all_refuse(Joined& joined) {
  const Stream stream;
  RankCase data(shapes(joined.ranks())[0], joined.me());
  expect_own_refusal(joined, data, stream);
  call_once(joined, data, stream, 3);
  expect(data.count_wrong() == 0, "a call behind one that all refused");
}

// Events of one call lie between the host's times around it, and none comes when the recording has ended.
void test_trace(Joined& joined) {
  const Stream stream;
  RankCase data(shapes(joined.ranks())[0], joined.me());
  call_once(joined, data, stream, 1);
  joined.session().start_trace();
  const int64_t begin_ns = trace_clock_ns();
  call_once(joined, data, stream, 2);
  const int64_t end_ns = trace_clock_ns();
  expect(data.count_wrong() == 0, "a traced call computes what others do");
  const TraceRecord record = joined.session().trace_record();
  constexpr int64_t kClockErrorNs = 200'000;
  std::set<std::string> roles;
  bool is_within = true;
  for (const TraceEvent& e : record.events) {
    roles.insert(e.role);
    is_within = is_within && e.t_wait_ns >= 0 && e.t_begin_ns <= e.t_end_ns &&
                e.t_begin_ns - e.t_wait_ns > begin_ns - kClockErrorNs && e.t_end_ns < end_ns + kClockErrorNs;
  }
  const Topology t = joined.session().topology();
  const bool has_peers = t.ranks_on(t.node(Rank{joined.me()})) > 1;
  expect(roles.count("compute") == 1, "the timeline has tiles");
  expect(!has_peers || roles.count("push") == 1, "it has chunks for peers");
  expect((t.nodes > 1) == (roles.count("send") == 1), "it has chunks for other nodes");
  expect(is_within, "its events lie where the host saw the call");
  expect(record.dropped == 0, "all of them had room");
  joined.session().stop_trace();
  call_once(joined, data, stream, 3);
  expect(joined.session().trace_record().events.size() == record.events.size(), "no event behind the recording");
}

void test_life(Joined& joined) {
  test_trace(joined);
  test_shapes(joined);
  test_two_streams(joined);
  test_graph(joined);
  test_all_refuse(joined);
  joined.meet();
}

void test_next_life(Joined& joined) {
  const Stream stream;
  RankCase data(shapes(joined.ranks())[1], joined.me());
  call_once(joined, data, stream, 4);
  expect(data.count_wrong() == 0, "a second communicator of the process");
  joined.meet();
}

void test_mismatch(Joined& joined) {
  const Stream stream;
  RankCase first(shapes(joined.ranks())[0], joined.me()), second(shapes(joined.ranks())[2], joined.me());
  call_once(joined, first, stream, 1);
  call_once(joined, second, stream, 1);
  joined.meet();
  const auto begin = Clock::now();
  joined.call(joined.me() == 0 ? first : second, stream);
  stream.finish();
  expect_end(joined, ErrorKind::mismatch, {"K = 256", "K = 72"}, begin);
}

void test_refused(Joined& joined) {
  const Stream stream;
  RankCase data(shapes(joined.ranks())[0], joined.me());
  call_once(joined, data, stream, 1);
  joined.meet();
  data.fill_results(stream, kUnwritten);
  const auto begin = Clock::now();
  if (joined.me() == 1) {
    expect_own_refusal(joined, data, stream);
  } else {
    joined.call(data, stream);
    stream.finish();
    expect(data.is_nan_in_rows_of(1), "results whose rows never came are NaN");
  }
  expect_end(joined, ErrorKind::refused, {"a is misaligned", "rank 1 refused"}, begin);
}

// The deadline of this scenario is short; what the first call does has been done in another communicator.
void test_absent(Joined& joined) {
  const Stream stream;
  RankCase data(shapes(joined.ranks())[0], joined.me());
  joined.meet();
  call_once(joined, data, stream, 1);
  joined.meet();
  data.fill_results(stream, kUnwritten);
  const auto begin = Clock::now();
  if (joined.me() != 0) {
    joined.call(data, stream);
    stream.finish();
    expect(data.is_nan_in_rows_of(0), "results whose rows never came are NaN");
    expect(ms_since(begin) < 5000, "a rank that never calls ends the call at its deadline");
  }
  expect_end(joined, ErrorKind::deadline, {"waited 0.05 s", "all_gather_matmul", "role ", "CTA "}, begin);
}

void test_killed(Joined& joined) {
  const Stream stream;
  RankCase data(shapes(joined.ranks())[0], joined.me());
  call_once(joined, data, stream, 1);
  joined.meet();
  const auto begin = Clock::now();
  if (joined.me() == joined.ranks() - 1) {
    // In the middle of a call: rank 0 has not come.
    joined.call(data, stream);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    raise(SIGKILL);
  }
  if (joined.me() != 0) {
    joined.call(data, stream);
    stream.finish();
  }
  std::optional<Error> error;
  while (!error && Clock::now() - begin < kPatience) {
    error = error_of([&] { joined.session().check(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  expect(error.has_value(), "survivors of a kill get an error");
  if (error) std::printf("  rank %d after %.1f ms: %s\n", joined.me(), ms_since(begin), error->what());
  const std::string name = "rank " + std::to_string(joined.ranks() - 1);
  expect(error && error->kind() == ErrorKind::peer_lost && std::string(error->what()).find(name) != std::string::npos,
         "and it says who is gone");
  DeviceBuffer<uint16_t> fresh(64);
  fresh.fill_bytes(0x22);
  expect(fresh.to_host()[63] == 0x2222, "survivors of a kill can use their GPU");
}

// The wire between the nodes dies in the middle of a call.
void test_wire_killed(Joined& joined) {
  const Stream stream;
  RankCase data(shapes(joined.ranks())[0], joined.me());
  call_once(joined, data, stream, 1);
  joined.meet();
  const auto begin = Clock::now();
  if (joined.me() != 0) {
    joined.call(data, stream);
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    kill(std::atoi(std::getenv(kWirePid)), SIGKILL);
  }
  stream.finish();
  expect_end(joined, ErrorKind::peer_lost, {"the wire process between the nodes is gone"}, begin);
}

struct Scenario {
  const char* name;
  std::vector<std::function<void(Joined&)>> lives;  // a communicator each, one after the other
  std::vector<int32_t> nodes = {2};                 // ranks of each
  double last_deadline_s = 20;                      // of the last life
  bool kills_last_rank = false;
  bool kills_wire = false;
  const char* refusal = nullptr;  // of the first life's creation
  bool is_crowded = false;        // another program holds SMs during the first life
  bool has_mps = true;
  const char* personality = "rc";
  const char* loading = "LAZY";

  int32_t ranks() const { return std::accumulate(nodes.begin(), nodes.end(), 0); }
  bool has_wire() const { return nodes.size() > 1; }
  bool kills() const { return kills_last_rank || kills_wire; }
};

std::vector<Scenario> scenarios() {
  return {
      {.name = "lives of 2", .lives = {test_life, test_next_life}},
      {.name = "lives of 2, eager", .lives = {test_life}, .loading = "EAGER"},
      {.name = "lives of 4", .lives = {test_life, test_next_life}, .nodes = {4}},
      {.name = "lives of 1", .lives = {test_life}, .nodes = {1}},
      {.name = "mismatch", .lives = {test_mismatch, test_next_life}, .nodes = {3}},
      {.name = "refused", .lives = {test_refused, test_next_life}, .nodes = {3}},
      {.name = "absent", .lives = {test_next_life, test_absent}, .nodes = {3}, .last_deadline_s = 0.05},
      {.name = "nodes 2x2, lives", .lives = {test_life, test_next_life}, .nodes = {2, 2}},
      {.name = "nodes 2x2, srd", .lives = {test_life}, .nodes = {2, 2}, .personality = "srd"},
      {.name = "nodes 3+1, lives", .lives = {test_life, test_next_life}, .nodes = {3, 1}},
      {.name = "nodes 1+2, lives", .lives = {test_life, test_next_life}, .nodes = {1, 2}},
      {.name = "nodes 2x2, mismatch", .lives = {test_mismatch, test_next_life}, .nodes = {2, 2}},
      {.name = "nodes 2x2, refused", .lives = {test_refused, test_next_life}, .nodes = {2, 2}},
      {.name = "nodes 1+2, absent", .lives = {test_next_life, test_absent}, .nodes = {1, 2}, .last_deadline_s = 0.05},
      {.name = "nodes 2x2, crowded",
       .lives = {test_next_life, test_next_life},
       .nodes = {2, 2},
       .refusal = "came: rank 0",
       .is_crowded = true},
      {.name = "without MPS", .lives = {test_next_life}, .refusal = "without MPS", .has_mps = false},
      {.name = "killed", .lives = {test_killed}, .nodes = {3}, .kills_last_rank = true},
      {.name = "nodes 1+2, killed", .lives = {test_killed}, .nodes = {1, 2}, .kills_last_rank = true},
      {.name = "nodes 1+2, wire killed", .lives = {test_wire_killed}, .nodes = {1, 2}, .kills_wire = true}};
}

void expect_refusal(const Options& options, const std::string& part) {
  const auto begin = Clock::now();
  const auto error = error_of([&] { const Joined joined(options); });
  std::printf("  rank %lld after %.1f ms: %s\n", static_cast<long long>(options.rank), ms_since(begin),
              error ? error->what() : "no error");
  expect(error && std::string(error->what()).find(part) != std::string::npos, "the refusal says: " + part);
}

// Another program on the GPU: it holds SMs for a while, by a roll-call to which one CTA does not come.
int hold_sms() {
  alarm(kRankLimitS);
  check_cuda(cudaSetDevice(0), "choosing the GPU");
  DeviceBuffer<std::byte> page(sizeof(RollCallPage));
  page.fill_bytes(0);
  check_cuda(cudaDeviceSynchronize(), "preparing the page");
  hold_roll_call({.page = reinterpret_cast<RollCallPage*>(page.data()),
                  .ctas = kHeldSms,
                  .expected = kHeldSms + 1,
                  .timeout_ns = kHeldS * 1'000'000'000ull});
  return 0;
}

int run_rank(const Scenario& scenario, const std::vector<std::string>& ports) {
  alarm(kRankLimitS);
  check_cuda(cudaSetDevice(0), "choosing the GPU");
  for (size_t life = 0; life < scenario.lives.size(); ++life) {
    Options options = Options::from_environment();
    if (!ports.empty()) options.rendezvous = "127.0.0.1:" + ports.at(life);
    options.deadline_s = life + 1 == scenario.lives.size() ? scenario.last_deadline_s : 20;
    if (scenario.refusal != nullptr && life == 0) {
      expect_refusal(options, scenario.refusal);
      if (scenario.is_crowded) std::this_thread::sleep_for(std::chrono::seconds(kHeldS));
      continue;
    }
    Joined joined(options);
    scenario.lives[life](joined);
    std::fflush(stdout);
  }
  return verdict_of_claims();
}

// --- The test that starts them ---

std::string free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("no free port");
  }
  close(fd);
  return std::to_string(ntohs(address.sin_port));
}

std::string text_of(const std::vector<int32_t>& nodes) {
  std::string text;
  for (const int32_t ranks : nodes) text += (text.empty() ? "" : ",") + std::to_string(ranks);
  return text;
}

// A context takes as many channels as it may have connections, of some 128 that an MPS server has for its clients: with
// 32 connections each the fourth client is refused as if memory had run out.
constexpr const char* kConnections = "CUDA_DEVICE_MAX_CONNECTIONS=8";

std::vector<std::string> variables_of(const Scenario& scenario) {
  const int32_t ranks = scenario.ranks(), wire_sms = scenario.has_wire() ? wire_ctas(ranks) : 0;
  return {"TILEWIRE_DEVICE=cuda", "TILEWIRE_CUDA_DEVICE=0",
          "TILEWIRE_SMS=" + std::to_string((sm_count() - wire_sms) / ranks / 2 * 2),
          "TILEWIRE_LAYOUT=" + text_of(scenario.nodes), "TILEWIRE_ARENA_INITIAL_BYTES=2MiB",
          // A rank's share of a card of 400 Gbit/s.
          "TILEWIRE_EMULATED_BANDWIDTH_GBPS=" + std::to_string(400 / ranks),
          std::string("TILEWIRE_EMULATED_PERSONALITY=") + scenario.personality, kConnections,
          "TILEWIRE_SECRET=only the ranks of this test", std::string("CUDA_MODULE_LOADING=") + scenario.loading};
}

void run_scenario(const Scenario& scenario, std::vector<std::string> variables) {
  std::printf("%s, %d ranks\n", scenario.name, scenario.ranks());
  std::fflush(stdout);
  const auto begin = Clock::now();
  std::vector<std::string> words{"/proc/self/exe", "rank", scenario.name};
  for (size_t life = 0; life < scenario.lives.size(); ++life) words.push_back(free_port());
  for (const std::string& v : variables_of(scenario)) variables.push_back(v);
  std::optional<WireProcess> wire;
  if (scenario.has_wire()) {
    wire.emplace(TILEWIRE_WIRE_PROGRAM, variables);
    variables.push_back(wire->variable());
    variables.push_back(std::string(kWirePid) + "=" + std::to_string(wire->pid()));
  }
  variables.push_back("TILEWIRE_WORLD_SIZE=" + std::to_string(scenario.ranks()));
  std::optional<SpawnedProgram> crowd;
  if (scenario.is_crowded) {
    crowd.emplace(std::vector<std::string>{"/proc/self/exe", "hold"}, variables);
    std::this_thread::sleep_for(std::chrono::seconds(2));  // until it holds them
  }
  std::vector<SpawnedProgram> ranks;
  for (int32_t r = 0; r < scenario.ranks(); ++r) {
    std::vector<std::string> own = variables;
    own.push_back("TILEWIRE_RANK=" + std::to_string(r));
    ranks.emplace_back(words, own);
  }
  for (int32_t r = 0; r < scenario.ranks(); ++r) {
    const bool is_killed = scenario.kills_last_rank && r + 1 == scenario.ranks();
    const int end = ranks[static_cast<size_t>(r)].wait(std::chrono::seconds(kRankLimitS + 5));
    expect(end == (is_killed ? -SIGKILL : 0),
           std::string(scenario.name) + ": rank " + std::to_string(r) + " ended with " + std::to_string(end));
  }
  if (crowd) expect(crowd->wait(std::chrono::seconds(kRankLimitS)) == 0, "who holds SMs gives them back");
  if (wire) {
    const int end = wire->end();
    std::printf("  the wire ended with %d\n", end);
    // What a kill does to the other clients of a daemon may be the wire's end too.
    expect(end == (scenario.kills_wire ? -SIGKILL : 0) || scenario.kills_last_rank, "the wire ends well");
  }
  std::printf("  took %.1f s\n", ms_since(begin) / 1e3);
  std::fflush(stdout);
}

int run_all(const std::string& part) {
  const bool has_own_mps = std::getenv("CUDA_MPS_PIPE_DIRECTORY") != nullptr;
  const std::string control = has_own_mps ? "" : find_mps_control();
  std::printf("MPS: %s\n", has_own_mps ? "that of the environment" : control.empty() ? "none" : control.c_str());
  std::unique_ptr<MpsDaemon> daemon;
  for (const Scenario& scenario : scenarios()) {
    if (std::string(scenario.name).find(part) == std::string::npos) continue;
    if (scenario.kills() && has_own_mps) continue;
    if (scenario.ranks() > 1 && scenario.has_mps && !has_own_mps && control.empty()) continue;
    if (!scenario.has_mps && has_own_mps) continue;
    if (scenario.kills() || !scenario.has_mps)
      daemon.reset();  // what a kill does to a daemon's other clients stays with this one
    if (!daemon && scenario.has_mps && !control.empty()) daemon = std::make_unique<MpsDaemon>(control);
    run_scenario(scenario, daemon ? daemon->environment() : std::vector<std::string>());
  }
  return verdict_of_claims();
}

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  const std::vector<std::string> args(words + 1, words + count);
  return tilewire::run_gpu_program([&] {
    if (!args.empty() && args[0] == "hold") return tilewire::hold_sms();
    if (args.size() >= 2 && args[0] == "rank") {
      for (const tilewire::Scenario& scenario : tilewire::scenarios()) {
        if (args[1] == scenario.name) return tilewire::run_rank(scenario, {args.begin() + 2, args.end()});
      }
      return 2;
    }
    return tilewire::run_all(args.empty() ? "" : args[0]);
  });
}

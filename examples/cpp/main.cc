// AllGather+GEMM from C++: the input is sharded by rows over the ranks, the weight by columns.
//
//   cmake -S examples/cpp -B build/example -DCMAKE_PREFIX_PATH=<where tilewire is installed>
//   cmake --build build/example
//   tilewire run -n 4 --nodes 2 build/example/gather_and_multiply
//
// Without a launcher it is a job of one rank.
#include <tilewire/tilewire.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

namespace {

constexpr int64_t kRows = 24;  // of each rank
constexpr int64_t kK = 96;
constexpr int64_t kN = 40;  // columns of this rank's weight

// Small integers, so that every sum is exact.
float a_value(int64_t row, int64_t i) { return static_cast<float>((row * 7 + i * 3) % 5 - 2); }
float b_value(int32_t rank, int64_t i, int64_t n) { return static_cast<float>((i * 5 + n + rank) % 7 - 3); }

std::vector<float> make_input(int64_t first_row) {
  std::vector<float> a;
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t i = 0; i < kK; ++i) a.push_back(a_value(first_row + r, i));
  }
  return a;
}

std::vector<float> make_weight(int32_t rank) {
  std::vector<float> b;
  for (int64_t i = 0; i < kK; ++i) {
    for (int64_t n = 0; n < kN; ++n) b.push_back(b_value(rank, i, n));
  }
  return b;
}

// How many elements of y [rows of all ranks, kN] differ from the plain product.
int64_t count_wrong(const std::vector<float>& y, int32_t rank) {
  int64_t wrong = 0;
  for (size_t at = 0; at < y.size(); ++at) {
    const int64_t row = static_cast<int64_t>(at) / kN, n = static_cast<int64_t>(at) % kN;
    float sum = 0;
    for (int64_t i = 0; i < kK; ++i) sum += a_value(row, i) * b_value(rank, i, n);
    wrong += y[at] != sum;
  }
  return wrong;
}

int run() {
  using namespace tilewire;
  Communicator comm = Communicator::init();  // rank, world size and meeting place come from the launcher
  std::vector<float> a = make_input(comm.rank() * kRows), b = make_weight(comm.rank()), y;

  AllGatherGemmArguments arguments;
  arguments.a = {a.data(), kRows, kK, kK, 1, DataType::fp32};
  arguments.b = {{b.data(), kK, kN, kN, 1, DataType::fp32}};
  arguments.out_dtype = DataType::fp32;
  arguments.make_results = [&](int64_t total_rows) {
    y.resize(static_cast<size_t>(total_rows * kN));
    return AllGatherGemmResults{.out = {{y.data(), total_rows, kN, kN, 1, DataType::fp32}}, .gathered = {}};
  };
  const CallReport report = all_gather_matmul(comm, arguments);

  const int64_t wrong = count_wrong(y, comm.rank());
  std::printf("rank %d of %d, nodes %s: %zu elements, %lld wrong, %lld bytes sent to other nodes\n", comm.rank(),
              comm.world_size(), comm.layout().c_str(), y.size(), static_cast<long long>(wrong),
              static_cast<long long>(report.network_bytes));
  comm.close();
  return wrong == 0 && !y.empty() ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

// AllGather+GEMM from C++. Alone it is a job of one rank; under a launcher every process is one:
//   tilewire run -n 4 --nodes 2 ./gather_and_multiply
#include <tilewire/all_gather_gemm.h>
#include <tilewire/communicator.h>
#include <tilewire/error.h>

#include <cstdio>
#include <vector>

namespace {

tilewire::MatrixView view(std::vector<float>& values, int64_t rows, int64_t cols) {
  return {.data = values.data(), .rows = rows, .cols = cols, .row_stride = cols, .dtype = tilewire::DataType::fp32};
}

// Every rank brings two rows of ones times its number + 1, and multiplies all ranks' rows by a weight of twos.
int run() {
  constexpr int64_t kRows = 2;
  constexpr int64_t kInner = 16;
  constexpr int64_t kCols = 3;
  auto comm = tilewire::Communicator::init();
  std::vector<float> a(kRows * kInner, static_cast<float>(comm.rank() + 1));
  std::vector<float> b(kInner * kCols, 2.0F);
  std::vector<float> out;

  tilewire::AllGatherGemmArguments arguments;
  arguments.a = view(a, kRows, kInner);
  arguments.b = {view(b, kInner, kCols)};
  arguments.out_dtype = tilewire::DataType::fp32;
  arguments.make_results = [&](int64_t total_rows) {
    out.resize(static_cast<size_t>(total_rows * kCols));
    return tilewire::AllGatherGemmResults{.out = {view(out, total_rows, kCols)}, .gathered = {}};
  };
  tilewire::all_gather_matmul(comm, arguments);
  comm.close();

  int64_t wrong = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto source = static_cast<float>(i / (kRows * kCols));
    wrong += out[i] == (source + 1) * 2 * kInner ? 0 : 1;
  }
  std::printf("%zu elements, %lld wrong\n", out.size(), static_cast<long long>(wrong));
  return wrong == 0 && !out.empty() ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const tilewire::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

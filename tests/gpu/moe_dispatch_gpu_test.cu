// The fused MoE dispatch on virtual nodes of 1, 2 and 4 ranks: every table, row and element of every call, and the ways in
// which a call ends early.
//   moe_dispatch_gpu_test [--gpus] [PART OF A NAME]
#include "gpu_program.cuh"
#include "moe_case.cuh"

#include <string>

namespace tilewire {
namespace {

MoeSize in_a_row(const std::vector<int32_t>& widths, Personality personality) {
  return {.name = "",
          .tokens = {130, 70, 33, 90},
          .rank_of_expert = dealt(7, 4),
          .top_k = 3,
          .h = 136,
          .cols = 130,
          .block_tokens = 40,
          .window = 2,
          .widths = widths,
          .personality = personality};
}

void test_faults() {
  const MoeSize two{.name = "", .tokens = {130, 70}, .rank_of_expert = dealt(5, 2), .top_k = 2, .h = 136, .cols = 264};
  const auto check_unfinished = [](const MoeCase& data) {
    expect(data.is_unfinished(0), "what a rank has not finished is NaN");
  };
  test_ranks_in_different_calls_of<MoeCase>(two, check_unfinished);
  test_abort_by_the_host_of<MoeCase>(two, check_unfinished);
}

int run(const std::string& part) {
  test_sizes_of<MoeCase>(moe_sizes(), part);
  if (part.empty() || part == "faults") {
    test_calls_in_a_row_of<MoeCase>(in_a_row({4}, Personality::rc));
    test_calls_in_a_row_of<MoeCase>(in_a_row({2, 2}, Personality::srd));
    test_faults();
    test_sizes_of<MoeCase>(moe_sizes(), "two ranks");  // the context works after faults
  }
  return verdict_of_claims();
}

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  tilewire::prepare_for_waiting_kernels();
  return tilewire::run_gpu_program([&] { return tilewire::run(tilewire::words_without_gpus(count, words)); });
}

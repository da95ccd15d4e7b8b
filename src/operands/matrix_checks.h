// Checks of a caller's matrices that are alike for all ops. All throw Error(invalid_argument) that names the argument,
// its values and the limit. `op` is the name of the call, for the error.
#pragma once

#include <tilewire/matrix.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"

namespace tilewire {

struct NamedMatrix {
  std::string name;
  MatrixView view;
};

[[noreturn]] void refuse_argument(const char* op, std::string what, std::string values, std::string limit,
                                  std::string advice = {});

// What stands in for the arithmetic of CPU ranks, where a call has it.
template <class StandIn>
void refuse_stand_in(const char* op, const StandIn& stand_in) {
  if (stand_in) refuse_argument(op, "a kernel has no stand-in", "", "CPU ranks");
}

// "[rows, cols]"
std::string shape_text(const MatrixView& m);
// "b", or "b[2]" where there are several.
std::string argument_name(const char* name, size_t index, size_t count);

// A matrix with elements has an address.
void check_memory(const char* op, const NamedMatrix& m);

struct ResultShape {
  int64_t rows = 0;
  int64_t cols = 0;
  DataType dtype = DataType::bf16;
};
// Shape, dtype, contiguous columns, rows that do not overlap, memory.
void check_result(const char* op, const NamedMatrix& m, const ResultShape& expected);

// No two of `written` share a byte, and none shares one with any of `read`.
void check_no_overlap(const char* op, const std::vector<NamedMatrix>& written, const std::vector<NamedMatrix>& read);

// A list `rows` with a count for each rank: its length and its signs.
void check_row_counts(const char* op, const std::vector<int64_t>& counts, int32_t ranks);
// Where the list says what each rank brings: this rank's `own` matrix has as many rows. The list has been checked.
void check_own_rows(const char* op, const std::vector<int64_t>& counts, Rank me, const NamedMatrix& own);

// That kernels multiply elements of this type, which is that of a.
void check_kernel_type(const char* op, DataType type);

}  // namespace tilewire

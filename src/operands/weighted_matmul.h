// What ops have in common that multiply rows by one or several weights, y_w = x * b_w (+ bias_w), whatever they move
// before or behind it: the caller's operands with their checks and texts, and the tile of a CPU rank. Errors are
// Error(invalid_argument) that names the argument, its values and the limit; `op` is the name of the call.
#pragma once

#include <tilewire/matrix.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "arithmetic/host_gemm.h"
#include "operands/matrix_checks.h"
#include "schedule/column_map.h"

namespace tilewire {

// The Arguments of such an op derive from it.
struct MatmulOperands {
  MatrixView a;               // [own rows, K], any strides
  std::vector<MatrixView> b;  // [K, N_w] each, any strides (a weight stored as [N, K] is a view with swapped strides)
  std::vector<const void*> bias;  // empty, or one a weight: N_w values of bias_dtype, or nullptr for none
  DataType bias_dtype = DataType::fp32;
};

// The columns of each weight.
std::vector<int64_t> cols_of(const MatmulOperands& operands);

// What one rank can find wrong with its operands.
void check_operands(const char* op, const MatmulOperands& operands);
// All that a call reads while it writes results, for check_no_overlap().
std::vector<NamedMatrix> read_matrices(const MatmulOperands& operands);
// One result a weight, of so many rows, as check_result() wants it. Returns them with their names.
std::vector<NamedMatrix> check_outs(const char* op, const MatmulOperands& operands, const std::vector<MatrixView>& out,
                                    int64_t rows, DataType dtype);

// The sizes of a problem.
struct MatmulSizes {
  const std::vector<int64_t>& rows;  // of each rank
  int64_t k = 0;
  const std::vector<int64_t>& cols;  // of each weight
  int64_t element_bytes = 0;         // of the widest matrix
};
// Signs, the number of weights, and byte counts that fit 64 bits (otherwise Error(resource)).
void check_sizes(const char* op, const MatmulSizes& sizes);

int64_t sum_of(const std::vector<int64_t>& sizes);
// "128 rows on each of 4 ranks" or "[20, 3, 9, 11] rows".
std::string rows_text(const std::vector<int64_t>& rows);
// "N = 2048+512 -> bf16"
std::string cols_text(const std::vector<int64_t>& cols, DataType out_dtype);

// The tile of `rows` rows that lie in `a`, each of K elements of a's dtype, and these columns of their weight. Without
// bias, and written nowhere yet.
HostGemmTile weight_tile(const MatmulOperands& operands, const ColumnMap::Block& columns, std::span<const RowSegment> a,
                         int64_t rows);
// Those columns of the weight's bias, where it has one.
void add_bias(const MatmulOperands& operands, const ColumnMap::Block& columns, HostGemmTile& tile);
// The tile's first element is out[row, col].
void write_into(const MatrixView& out, int64_t row, int64_t col, HostGemmTile& tile);

}  // namespace tilewire

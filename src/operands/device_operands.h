// The caller's matrices as kernels see them, for all ops that multiply on a GPU: contiguous along one side, addresses and
// pitches of 16 bytes. Errors are Error(invalid_argument) that names the argument; `op` is the name of the call.
#pragma once

#include <tilewire/matrix.h>

#include <cstdint>
#include <string>
#include <vector>

#include "device/tile/tensor_map.cuh"

namespace tilewire {

// A matrix whose rows are contiguous. One row alone may have any pitch.
DeviceMatrix rows_of(const MatrixView& m);

// A weight [K, N] as it is stored: [K, N], which is what its view says, or [N, K].
bool is_n_major(const char* op, const std::string& name, const MatrixView& b);
DeviceMatrix as_stored(const char* op, const std::string& name, const MatrixView& b);
// How all weights of a call are stored, which must be alike.
bool are_n_major(const char* op, const std::vector<MatrixView>& b);

// That the copy engine can follow it, where it has elements.
void check_stored(const std::string& name, const DeviceMatrix& m);
// That its rows are contiguous, too.
void check_device_rows(const char* op, const std::string& name, const MatrixView& m);
// The rows of a, and the weights: what kernels ask of them.
void check_device_operands(const char* op, const MatrixView& a, const std::vector<MatrixView>& b);

struct OperandShape {
  int64_t rows = 0;
  int64_t cols = 0;
  DataType type = DataType::bf16;
};
// That it has that shape, too.
void check_operand(const char* op, const std::string& name, const DeviceMatrix& m, const OperandShape& shape);

}  // namespace tilewire

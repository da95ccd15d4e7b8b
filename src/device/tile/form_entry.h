// The compiled instances of a kernel that is made of tile forms: which there are, and which of them a plan means. Those of
// one form have a source file to themselves.
#pragma once

#include "device/tile/tile_form.h"

#include <tilewire/data_type.h>

#include <span>

namespace tilewire {

// The kernel for operands of a type and an order of B.
using FormKernel = const void* (*)(DataType type, bool is_b_n_major);

struct FormEntry {
  FormNumbers form;
  FormKernel kernel;
};

// That whose clusters make tiles of this size; null: there is none.
inline const FormEntry* find_form(std::span<const FormEntry> entries, int64_t work_rows, int64_t work_cols) {
  for (const FormEntry& entry : entries) {
    if (entry.form.work_rows() == work_rows && entry.form.work_cols() == work_cols) return &entry;
  }
  return nullptr;
}

}  // namespace tilewire

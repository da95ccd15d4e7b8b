// The compiled instances of a kernel that is made of tile forms. Those of one form have a source file to themselves.
#pragma once

#include "device/tile/tile_form.h"

#include <tilewire/data_type.h>

namespace tilewire {

// The kernel for operands of a type and an order of B.
using FormKernel = const void* (*)(DataType type, bool is_b_n_major);

struct FormEntry {
  FormNumbers form;
  FormKernel kernel;
};

}  // namespace tilewire

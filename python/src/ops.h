// THE list of operations in Python: each name NAME has a file python/src/NAME.cc that defines add_NAME(module). The
// build takes the files from the lines that begin with OP.
#pragma once

#define TILEWIRE_PYTHON_OPS(OP) \
  /* all_gather_matmul */       \
  OP(all_gather)                \
  /* matmul_reduce_scatter */   \
  OP(reduce_scatter)            \
  /* matmul_all_reduce */       \
  OP(all_reduce)                \
  /* ring_attention */          \
  OP(ring_attention)            \
  /* moe_dispatch_matmul */     \
  OP(moe_dispatch)

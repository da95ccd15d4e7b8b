// The matrix instruction of a warpgroup: D[64, N] += A[64, 16] * B[16, N], B in shared memory, A there or in registers,
// fp32 accumulators in registers. Asynchronous: fence, issue, commit, wait.
#pragma once

#include "device/ptx/qualifier.cuh"

#include <cuda_bf16.h>

#include <type_traits>

namespace tilewire::ptx {

TILEWIRE_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
TILEWIRE_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
TILEWIRE_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// The lists of 32 registers that the instructions are put together from.
#define TILEWIRE_WGMMA_NAMES_0                                             \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TILEWIRE_WGMMA_NAMES_1                                                         \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TILEWIRE_WGMMA_NAMES_2                                                         \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define TILEWIRE_WGMMA_NAMES_3                                                                     \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define TILEWIRE_WGMMA_4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define TILEWIRE_WGMMA_16(i) \
  TILEWIRE_WGMMA_4(i), TILEWIRE_WGMMA_4((i) + 4), TILEWIRE_WGMMA_4((i) + 8), TILEWIRE_WGMMA_4((i) + 12)
#define TILEWIRE_WGMMA_32(i) TILEWIRE_WGMMA_16(i), TILEWIRE_WGMMA_16((i) + 16)
#define TILEWIRE_WGMMA_64(i) TILEWIRE_WGMMA_32(i), TILEWIRE_WGMMA_32((i) + 32)
#define TILEWIRE_WGMMA_NAMES_40_MORE ", %32, %33, %34, %35, %36, %37, %38, %39"
#define TILEWIRE_WGMMA_REGISTERS_80 TILEWIRE_WGMMA_32(0), TILEWIRE_WGMMA_4(32), TILEWIRE_WGMMA_4(36)
#define TILEWIRE_WGMMA_NAMES_80 TILEWIRE_WGMMA_NAMES_64 TILEWIRE_WGMMA_NAMES_40_MORE
#define TILEWIRE_WGMMA_NAMES_48_MORE TILEWIRE_WGMMA_NAMES_40_MORE ", %40, %41, %42, %43, %44, %45, %46, %47"
#define TILEWIRE_WGMMA_REGISTERS_96 TILEWIRE_WGMMA_32(0), TILEWIRE_WGMMA_16(32)
#define TILEWIRE_WGMMA_NAMES_96 TILEWIRE_WGMMA_NAMES_64 TILEWIRE_WGMMA_NAMES_48_MORE
#define TILEWIRE_WGMMA_REGISTERS_64 TILEWIRE_WGMMA_32(0)
#define TILEWIRE_WGMMA_REGISTERS_128 TILEWIRE_WGMMA_64(0)
#define TILEWIRE_WGMMA_REGISTERS_192 TILEWIRE_WGMMA_64(0), TILEWIRE_WGMMA_32(64)
#define TILEWIRE_WGMMA_REGISTERS_256 TILEWIRE_WGMMA_64(0), TILEWIRE_WGMMA_64(64)
#define TILEWIRE_WGMMA_NAMES_64 TILEWIRE_WGMMA_NAMES_0
#define TILEWIRE_WGMMA_NAMES_128 TILEWIRE_WGMMA_NAMES_64 TILEWIRE_WGMMA_NAMES_1
#define TILEWIRE_WGMMA_NAMES_192 TILEWIRE_WGMMA_NAMES_128 TILEWIRE_WGMMA_NAMES_2
#define TILEWIRE_WGMMA_NAMES_256 TILEWIRE_WGMMA_NAMES_192 TILEWIRE_WGMMA_NAMES_3

// One instruction. `n` columns; `type` bf16 or f16; the last four are the numbers of the operands behind the registers.
#define TILEWIRE_WGMMA_INSTRUCTION(n, type, a_name, b_name, add_name, major_name)                              \
  asm volatile("{ .reg .pred add; setp.ne.b32 add, " add_name                                                  \
               ", 0;\n"                                                                                        \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type " {" TILEWIRE_WGMMA_NAMES_##n \
               "}, " a_name ", " b_name ", add, 1, 1, 0, " major_name "; }"                                    \
               : TILEWIRE_WGMMA_REGISTERS_##n                                                                  \
               : "l"(a), "l"(b), "r"(static_cast<int>(does_add)), "n"(static_cast<int>(kIsBNMajor)))

// d += A * B, or d = A * B where does_add is false (which spares zeroing d). The operands are descriptors.
#define TILEWIRE_WGMMA_FUNCTION(n, a_name, b_name, add_name, major_name)                \
  template <class Element, bool kIsBNMajor>                                             \
  TILEWIRE_DEVICE void wgmma(float(&d)[n / 2], uint64_t a, uint64_t b, bool does_add) { \
    if constexpr (std::is_same_v<Element, __nv_bfloat16>) {                             \
      TILEWIRE_WGMMA_INSTRUCTION(n, bf16, a_name, b_name, add_name, major_name);        \
    } else {                                                                            \
      TILEWIRE_WGMMA_INSTRUCTION(n, f16, a_name, b_name, add_name, major_name);         \
    }                                                                                   \
  }

// The same with A in registers: four a thread, laid out as wgmma leaves 16 columns of a result, two elements in each.
#define TILEWIRE_WGMMA_HELD_INSTRUCTION(n, type, a_names, b_name, add_name, major_name)                        \
  asm volatile("{ .reg .pred add; setp.ne.b32 add, " add_name                                                  \
               ", 0;\n"                                                                                        \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type " {" TILEWIRE_WGMMA_NAMES_##n \
               "}, {" a_names "}, " b_name ", add, 1, 1, " major_name "; }"                                    \
               : TILEWIRE_WGMMA_REGISTERS_##n                                                                  \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(does_add)),          \
                 "n"(static_cast<int>(kIsBNMajor)))
#define TILEWIRE_WGMMA_HELD_FUNCTION(n, a_names, b_name, add_name, major_name)                 \
  template <class Element, bool kIsBNMajor>                                                    \
  TILEWIRE_DEVICE void wgmma(float(&d)[n / 2], const uint32_t* a, uint64_t b, bool does_add) { \
    if constexpr (std::is_same_v<Element, __nv_bfloat16>) {                                    \
      TILEWIRE_WGMMA_HELD_INSTRUCTION(n, bf16, a_names, b_name, add_name, major_name);         \
    } else {                                                                                   \
      TILEWIRE_WGMMA_HELD_INSTRUCTION(n, f16, a_names, b_name, add_name, major_name);          \
    }                                                                                          \
  }

TILEWIRE_WGMMA_FUNCTION(80, "%40", "%41", "%42", "%43")
TILEWIRE_WGMMA_FUNCTION(96, "%48", "%49", "%50", "%51")
TILEWIRE_WGMMA_HELD_FUNCTION(64, "%32, %33, %34, %35", "%36", "%37", "%38")
TILEWIRE_WGMMA_HELD_FUNCTION(128, "%64, %65, %66, %67", "%68", "%69", "%70")
TILEWIRE_WGMMA_FUNCTION(64, "%32", "%33", "%34", "%35")
TILEWIRE_WGMMA_FUNCTION(128, "%64", "%65", "%66", "%67")
TILEWIRE_WGMMA_FUNCTION(192, "%96", "%97", "%98", "%99")
TILEWIRE_WGMMA_FUNCTION(256, "%128", "%129", "%130", "%131")

// Where an operand lies, rows of 128 bytes with the 128-byte swizzle, in blocks of 8 rows (1024 bytes).
//   K-major: a row holds 64 elements along K; 16 of them are 32 bytes. N-major: a row holds 64 columns of one step of
//   K; 16 steps are 2048 bytes, and panels of 64 columns lie panel_bytes apart.
constexpr uint64_t kDescriptorUnitBytes = 16;
constexpr uint64_t kBlockBytes = 1024;
constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;

// The field holds 18 bits of address. In a cluster an address has the number of the CTA above them.
TILEWIRE_DEVICE uint64_t descriptor_start(uint32_t address) { return (address & 0x3ffff) / kDescriptorUnitBytes; }

TILEWIRE_DEVICE uint64_t k_major_descriptor(uint32_t address) {
  return descriptor_start(address) | uint64_t{1} << 16 | kBlockBytes / kDescriptorUnitBytes << 32 | kSwizzle128;
}
TILEWIRE_DEVICE uint64_t n_major_descriptor(uint32_t address, uint32_t panel_bytes) {
  return descriptor_start(address) | panel_bytes / kDescriptorUnitBytes << 16 |
         kBlockBytes / kDescriptorUnitBytes << 32 | kSwizzle128;
}

}  // namespace tilewire::ptx

#include <nanobind/stl/array.h>
#include <tilewire/ring_attention.h>

#include <array>
#include <utility>
#include <vector>

#include "python/src/op_binding.h"

namespace nb = nanobind;

namespace tilewire {
namespace {

struct Attention {
  using Arguments = RingAttentionArguments;
  using Handle = RingAttention;
  using PythonResults = std::pair<MatrixView, MatrixView>;

  static constexpr const char* kName = "ring_attention";
  static constexpr const char* kHandle = "RingAttention";
  static constexpr CallReport (*kCall)(Communicator&, const Arguments&) = &ring_attention;
  static constexpr CallReport (*kCallOn)(Communicator&, const Arguments&, void*) = &ring_attention;
  static constexpr auto* kPlan = &plan_ring_attention;

  static RingAttentionArguments::Results to_results(const PythonResults& results) {
    return {results.first, results.second};
  }
};

constexpr std::pair<const char*, SequencePlacement> kPlacements[] = {{"contiguous", SequencePlacement::contiguous},
                                                                     {"zigzag", SequencePlacement::zigzag},
                                                                     {"given", SequencePlacement::given}};

SequencePlacement placement_of(const std::string& word) {
  for (const auto& [name, placement] : kPlacements) {
    if (word == name) return placement;
  }
  throw nb::value_error("a placement was expected");
}

template <class T>
void add_placement(nb::class_<T>& c) {
  c.def_prop_rw(
      "placement",
      [](const T& t) {
        for (const auto& [name, placement] : kPlacements) {
          if (placement == t.placement) return std::string(name);
        }
        return std::string();
      },
      [](T& t, const std::string& word) { t.placement = placement_of(word); });
}

void add_heads(nb::module_& m) {
  nb::class_<HeadsView>(m, "Heads")
      .def(
          "__init__",
          [](HeadsView* h, uintptr_t address, const std::array<int64_t, 4>& shape,
             const std::array<int64_t, 4>& strides, const std::string& dtype) {
            new (h) HeadsView{.data = reinterpret_cast<void*>(address),
                              .batch = shape[0],
                              .rows = shape[1],
                              .heads = shape[2],
                              .dim = shape[3],
                              .batch_stride = strides[0],
                              .row_stride = strides[1],
                              .head_stride = strides[2],
                              .dim_stride = strides[3],
                              .dtype = parse_data_type(dtype)};
          },
          nb::arg("address"), nb::arg("shape"), nb::arg("strides"), nb::arg("dtype"));
}

void add_attention_arguments(nb::module_& m) {
  auto arguments = make_arguments<Attention>(m);
  arguments.def_rw("q", &RingAttentionArguments::q)
      .def_rw("k", &RingAttentionArguments::k)
      .def_rw("v", &RingAttentionArguments::v)
      .def_rw("causal", &RingAttentionArguments::causal)
      .def_rw("scale", &RingAttentionArguments::scale)
      .def_rw("positions", &RingAttentionArguments::positions)
      .def_rw("kv_positions", &RingAttentionArguments::kv_positions)
      .def_rw("cu_seqlens", &RingAttentionArguments::cu_seqlens)
      .def_rw("kv_cu_seqlens", &RingAttentionArguments::kv_cu_seqlens);
  add_placement(arguments);
  add_dtype(arguments, "out_dtype", &RingAttentionArguments::out_dtype);
  add_rows(arguments);
  arguments
      .def("use_kv_rows",
           [](RingAttentionArguments& a, const std::vector<int64_t>& rows) {
             a.kv_rows = {RowCounts::From::list, rows};
           })
      .def("exchange_kv_rows", [](RingAttentionArguments& a) {
        a.kv_rows = {RowCounts::From::exchange, {}};
      });
}

void add_attention_shape(nb::module_& m) {
  auto shape = make_shape<Attention>(m);
  shape.def_rw("rows", &RingAttentionShape::rows)
      .def_rw("kv_rows", &RingAttentionShape::kv_rows)
      .def_rw("batch", &RingAttentionShape::batch)
      .def_rw("q_heads", &RingAttentionShape::q_heads)
      .def_rw("kv_heads", &RingAttentionShape::kv_heads)
      .def_rw("head_dim", &RingAttentionShape::head_dim)
      .def_rw("causal", &RingAttentionShape::causal)
      .def_rw("cu_seqlens", &RingAttentionShape::cu_seqlens)
      .def_rw("kv_cu_seqlens", &RingAttentionShape::kv_cu_seqlens);
  add_placement(shape);
  add_dtype(shape, "dtype", &RingAttentionShape::dtype);
  add_dtype(shape, "out_dtype", &RingAttentionShape::out_dtype);
}

}  // namespace

void add_ring_attention(nb::module_& m) {
  add_heads(m);
  add_attention_arguments(m);
  add_attention_shape(m);
  add_op<Attention>(m);
  m.def("zigzag_rows", &zigzag_rows, nb::arg("total"), nb::arg("ranks"));
}

}  // namespace tilewire

// The fields of operations that multiply rows of `a` by one or several weights `b`, whose struct B is that of op_binding.h.
#pragma once

#include "python/src/op_binding.h"

namespace tilewire {

// Of the operations that take one weight, or whose ranks have all rows: Python has lists all the same.
template <class T>
T only(const std::vector<T>& list) {
  if (list.size() != 1) throw nanobind::value_error("a list of one was expected");
  return list[0];
}

// `a`, the weight `b` and its bias, by its address.
template <class T>
requires std::is_same_v<decltype(T::b), MatrixView>
void add_weights(nanobind::class_<T>& c) {
  c.def_rw("a", &T::a);
  c.def_prop_rw(
      "b", [](const T& t) { return std::vector<MatrixView>{t.b}; },
      [](T& t, const std::vector<MatrixView>& b) { t.b = only(b); });
  c.def_prop_rw(
      "bias", [](const T& t) { return std::vector<uintptr_t>{reinterpret_cast<uintptr_t>(t.bias)}; },
      [](T& t, const std::vector<uintptr_t>& addresses) { t.bias = reinterpret_cast<const void*>(only(addresses)); });
}

// `a`, weights `b` and their biases, by their addresses.
template <class T>
void add_weights(nanobind::class_<T>& c) {
  c.def_rw("a", &T::a).def_rw("b", &T::b);
  c.def_prop_rw(
      "bias",
      [](const T& t) {
        std::vector<uintptr_t> addresses;
        for (const void* bias : t.bias) addresses.push_back(reinterpret_cast<uintptr_t>(bias));
        return addresses;
      },
      [](T& t, const std::vector<uintptr_t>& addresses) {
        t.bias.clear();
        for (const uintptr_t address : addresses) t.bias.push_back(reinterpret_cast<const void*>(address));
      });
}

// The public arguments of an operation that multiplies `a` by weights.
template <class B>
nanobind::class_<typename B::Arguments> add_arguments(nanobind::module_& m) {
  using Arguments = typename B::Arguments;
  nanobind::class_<Arguments> arguments = make_arguments<B>(m);
  add_weights(arguments);
  if constexpr (requires(Arguments a) { a.rows; }) add_rows(arguments);
  add_dtype(arguments, "out_dtype", &Arguments::out_dtype);
  add_dtype(arguments, "bias_dtype", &Arguments::bias_dtype);
  return arguments;
}

// The shape of its handle.
template <class B>
nanobind::class_<typename B::Handle::Shape> add_shape(nanobind::module_& m) {
  using Shape = typename B::Handle::Shape;
  nanobind::class_<Shape> shape = make_shape<B>(m);
  shape.def_rw("k", &Shape::k);
  if constexpr (requires(Shape s) { s.rows; }) {
    shape.def_rw("rows", &Shape::rows);
  } else {
    shape.def_prop_rw(
        "rows", [](const Shape& s) { return std::vector<int64_t>{s.m}; },
        [](Shape& s, const std::vector<int64_t>& rows) { s.m = only(rows); });
  }
  if constexpr (requires(Shape s) { s.cols; }) {
    shape.def_rw("cols", &Shape::cols);
  } else {
    shape.def_prop_rw(
        "cols", [](const Shape& s) { return std::vector<int64_t>{s.n}; },
        [](Shape& s, const std::vector<int64_t>& cols) { s.n = only(cols); });
  }
  add_dtype(shape, "dtype", &Shape::dtype);
  add_dtype(shape, "out_dtype", &Shape::out_dtype);
  return shape;
}

}  // namespace tilewire

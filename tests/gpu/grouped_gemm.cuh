// The compute role of MoE dispatch alone, in any form: the kernel behind tables and rows that a call has left.
#pragma once

#include "device_buffer.cuh"

#include "device/tile/tile_launch.cuh"
#include "ops/moe_dispatch/device_launch.cuh"
#include "ops/moe_dispatch/device_tiles.cuh"

#include "device/tile/gemm_kernel.cuh"

#include <cstring>
#include <string>
#include <vector>

namespace tilewire {

struct ReadyTables {
  TILEWIRE_DEVICE bool sees_tables() const { return true; }
};

template <class Config>
__global__ void __launch_bounds__(kGemmThreads, 1)
    grouped_gemm_kernel(const __grid_constant__ moe_dispatch::FusedParameters p) {
  using Form = typename Config::Form;
  extern __shared__ __align__(1024) uint8_t memory[];
  const CallSpace space(p.schedule.frame, p.call);
  const SharedTiles<Form> shared(memory);
  const ReadyTables ready;
  const moe_dispatch::TileWalk role(p, space, SharedTiles<Form>::worker(), ready);
  run_gemm_roles<Config>(shared, moe_dispatch::ExpertMaps<Form>(p, space, shared.spare()), role, OpenGate{},
                         p.stages_per_tile);
}

struct GroupedForm {
  std::string name;
  FormNumbers form;
  const void* kernel;
};
template <class Form>
GroupedForm grouped_form(const char* name) {
  return {name, form_numbers<Form>(),
          reinterpret_cast<const void*>(&grouped_gemm_kernel<TileConfig<Form, __nv_bfloat16, true>>)};
}

// The parameters of a call (one rank, one round) for tiles of another form; tables of its own.
class GroupedGemm {
 public:
  GroupedGemm(const GroupedForm& form, const moe_dispatch::FusedKernel& kernel, moe_dispatch::FusedParameters p,
              const DeviceMatrix& rows, const SlotArray& w, int32_t raster_rows, int32_t sms)
      : form_(form), parameters_(p) {
    const FormNumbers& f = form_.form;
    moe_dispatch::Schedule& s = parameters_.schedule;
    ctas_ = std::min(prepare_tile_kernel(form_.kernel, f) * f.cluster_ctas(), sms) / f.launch_ctas * f.launch_ctas;
    s.tile_rows = f.work_rows();
    s.columns.tile_cols = f.work_cols();
    s.raster_rows = raster_rows;
    s.workers = ctas_ / f.cluster_ctas();
    moe_dispatch::Routing routing = kernel.routing();
    std::vector<int32_t> begins(static_cast<size_t>(routing.groups) + 1);
    check_cuda(cudaMemcpy(begins.data(), routing.group_begin, begins.size() * 4, cudaMemcpyDeviceToHost), "reading");
    std::vector<int64_t> tiles(1, 0);
    for (size_t g = 0; g + 1 < begins.size(); ++g) {
      tiles.push_back(tiles.back() + div_up(begins[g + 1] - begins[g], s.tile_rows) * s.columns.blocks());
    }
    check_cuda(cudaMemcpy(tables_.data(), tiles.data(), tiles.size() * 8, cudaMemcpyHostToDevice), "writing");
    routing.group_tile = tables_.data();
    check_cuda(cudaMemcpy(routing_.data(), &routing, sizeof(routing), cudaMemcpyHostToDevice), "writing");
    s.routing = routing_.data();
    const CUtensorMap map = encode_tensor_map("rows", rows, {f.rows / f.cluster_col_tiles, kStageDepth});
    parameters_.rows[0] = parameters_.rows[1] = map;
    parameters_.w = encode_slot_map("w1", w, {kStageDepth / f.cluster_row_tiles, kStageDepth});
  }
  void launch(cudaStream_t stream) const {
    moe_dispatch::FusedParameters parameters = parameters_;
    launch_tile_kernel(form_.kernel, form_.form, ctas_, &parameters, stream);
  }
  const std::string& name() const { return form_.name; }

 private:
  GroupedForm form_;
  moe_dispatch::FusedParameters parameters_;
  DeviceBuffer<int64_t> tables_{4096};
  DeviceBuffer<moe_dispatch::Routing> routing_{1};
  int32_t ctas_ = 0;
};

}  // namespace tilewire

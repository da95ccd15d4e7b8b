#include "device/tile/tile_launch.cuh"

#include "device/cuda_check.cuh"

#include <tilewire/error.h>

#include <string>

namespace tilewire {

namespace {

struct Launch {
  cudaLaunchConfig_t config{};
  cudaLaunchAttribute attributes[2] = {};

  Launch(const FormNumbers& form, int32_t ctas, cudaStream_t stream, TileLaunch how = TileLaunch::behind) {
    const auto next = [&]() -> cudaLaunchAttribute& { return attributes[config.numAttrs++]; };
    if (form.launch_ctas > 1) {
      cudaLaunchAttribute& cluster = next();
      cluster.id = cudaLaunchAttributeClusterDimension;
      cluster.val.clusterDim = {static_cast<unsigned>(form.launch_ctas), 1, 1};
    }
    if (how == TileLaunch::waits_itself) {
      cudaLaunchAttribute& early = next();
      early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      early.val.programmaticStreamSerializationAllowed = 1;
    }
    config.gridDim = dim3(static_cast<unsigned>(ctas));
    config.blockDim = dim3(kGemmThreads);
    config.dynamicSmemBytes = static_cast<size_t>(form.shared_bytes);
    config.stream = stream;
    config.attrs = attributes;
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
};

}  // namespace

int32_t sm_count() {
  int device = 0, sms = 0;
  check_cuda(cudaGetDevice(&device), "asking for the current GPU");
  check_cuda(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "counting the SMs");
  return sms;
}

int32_t prepare_tile_kernel(const void* kernel, const FormNumbers& form) {
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, form.shared_bytes),
             std::string("asking for the shared memory of ") + form.name);
  int count = 0;
  if (form.launch_ctas == 1) {
    check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, kernel, kGemmThreads,
                                                             static_cast<size_t>(form.shared_bytes)),
               "asking how many CTAs fit");
    return count * sm_count();
  }
  const Launch launch(form, sm_count() / form.launch_ctas * form.launch_ctas, nullptr);
  check_cuda(cudaOccupancyMaxActiveClusters(&count, kernel, &launch.config), "asking how many clusters fit");
  return count * (form.launch_ctas / form.cluster_ctas());
}

void prepare_tile_grid(const void* kernel, const FormNumbers& form, int32_t ctas) {
  const int32_t fit = prepare_tile_kernel(kernel, form) * form.cluster_ctas();
  if (ctas <= fit) return;
  throw Error(ErrorKind::resource, {.what = "the grid of the kernel does not fit the GPU",
                                    .values = std::to_string(ctas) + " CTAs of " + form.name,
                                    .limit = std::to_string(fit) + " at once"});
}

void launch_tile_kernel(const void* kernel, const FormNumbers& form, int32_t ctas, void* parameters,
                        cudaStream_t stream, TileLaunch how) {
  void* arguments[] = {parameters};
  const Launch launch(form, ctas, stream, how);
  check_cuda(cudaLaunchKernelExC(&launch.config, kernel, arguments), std::string("launching ") + form.name);
}

}  // namespace tilewire

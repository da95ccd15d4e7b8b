#include "memory/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <tilewire/error.h>

#include <memory>

namespace tilewire {
namespace {

// Kernels and drivers go together within a major version.
constexpr int kNeededVersion = CUDA_VERSION / 1000 * 1000;

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};

[[noreturn]] void fail_function(const char* library, const char* name) {
  throw Error(ErrorKind::unavailable,
              {.what = "the CUDA driver is too old",
               .where = library,
               .values = fmt::format("it has no function {}", name),
               .limit = fmt::format("a driver for CUDA {} or newer is needed", version_text(kNeededVersion)),
               .advice = "install a newer NVIDIA driver, or use CPU ranks"});
}

ErrorKind kind_of(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
    case CUDA_ERROR_MPS_MAX_CLIENTS_REACHED:
    case CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED: return ErrorKind::resource;
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_OPERATING_SYSTEM:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
    case CUDA_ERROR_MPS_CONNECTION_FAILED:
    case CUDA_ERROR_MPS_RPC_FAILURE:
    case CUDA_ERROR_MPS_SERVER_NOT_READY: return ErrorKind::unavailable;
    default: return ErrorKind::internal;
  }
}

const char* advice_of(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return "use smaller calls or fewer ranks on this GPU, end other programs on it, or lower "
             "TILEWIRE_ARENA_INITIAL_BYTES";
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE: return "look at CUDA_VISIBLE_DEVICES and nvidia-smi, or use CPU ranks";
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_DEINITIALIZED: return "do not use a GPU in a forked child or while the process ends; spawn instead";
    case CUDA_ERROR_MPS_MAX_CLIENTS_REACHED:
    case CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED: return "run fewer processes under this MPS server";
    case CUDA_ERROR_MPS_CONNECTION_FAILED:
    case CUDA_ERROR_MPS_RPC_FAILURE:
    case CUDA_ERROR_MPS_SERVER_NOT_READY: return "start the MPS daemon of CUDA_MPS_PIPE_DIRECTORY, or unset that";
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      return "the driver's parts do not fit together or are not started: see dmesg";
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
      return "an earlier kernel failed and took the context with it: look for that one, and start the process anew";
    default: return "";
  }
}

using TextOf = CUresult (*)(CUresult, const char**);

std::string text_of(TextOf text_of_result, CUresult result) {
  const char* text = nullptr;
  if (text_of_result(result, &text) != CUDA_SUCCESS || text == nullptr) return "an error this driver has no text for";
  return text;
}

}  // namespace

void check_driver_version(int found) {
  if (found >= kNeededVersion) return;
  throw Error(ErrorKind::unavailable,
              {.what = "the CUDA driver is too old",
               .values = fmt::format("it is for CUDA {}", version_text(found)),
               .limit = fmt::format("this was built with CUDA {} and needs a driver for {} or newer",
                                    version_text(CUDA_VERSION), version_text(kNeededVersion)),
               .advice = "install a newer NVIDIA driver, or use CPU ranks"});
}

CudaDriver load_cuda_driver(const char* library) {
  std::unique_ptr<void, CloseLibrary> loaded(dlopen(library, RTLD_NOW | RTLD_LOCAL));
  if (!loaded) {
    const char* reason = dlerror();
    throw Error(ErrorKind::unavailable,
                {.what = "the CUDA driver is not here",
                 .where = library,
                 .values = reason != nullptr ? reason : "unknown reason",
                 .limit = fmt::format("a driver for CUDA {} or newer is needed", version_text(kNeededVersion)),
                 .advice = "install the NVIDIA driver, or put its folder into LD_LIBRARY_PATH; or use CPU ranks"});
  }
  // The one function that is looked up by name and version: all others come through it, each in the form that the
  // headers of this build declare.
  const auto find = reinterpret_cast<decltype(&cuGetProcAddress)>(dlsym(loaded.get(), "cuGetProcAddress_v2"));
  if (find == nullptr) fail_function(library, "cuGetProcAddress_v2");
  CudaDriver driver;
  const auto fill = [&](auto& member, const char* name) {
    void* found = nullptr;
    if (find(name, &found, CUDA_VERSION, CU_GET_PROC_ADDRESS_DEFAULT, nullptr) != CUDA_SUCCESS || found == nullptr) {
      fail_function(library, name);
    }
    member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(found);
  };
  int version = 0;
  fill(driver.driver_version, "cuDriverGetVersion");
  if (driver.driver_version(&version) != CUDA_SUCCESS) version = 0;
  check_driver_version(version);
#define TILEWIRE_CUDA_DRIVER_FILL(member, name) fill(driver.member, #name);
  TILEWIRE_CUDA_DRIVER_CALLS(TILEWIRE_CUDA_DRIVER_FILL)
#undef TILEWIRE_CUDA_DRIVER_FILL
  static_cast<void>(loaded.release());  // the table points into it
  return driver;
}

const CudaDriver& cuda_driver() {
  static const CudaDriver driver = load_cuda_driver();
  return driver;
}

void check_result(const CudaDriver& driver, CUresult result, const CudaCall& call) {
  if (result == CUDA_SUCCESS) return;
  throw Error(kind_of(result),
              {.what = fmt::format("cannot {}", call.purpose),
               .where = call.where,
               .values = fmt::format("{}{}{} gave {} ({}): {}", call.values, call.values.empty() ? "" : ", ", call.name,
                                     text_of(driver.error_name, result), static_cast<int>(result),
                                     text_of(driver.error_text, result)),
               .limit = call.limit,
               .advice = call.advice.empty() ? advice_of(result) : call.advice});
}

}  // namespace tilewire

# CUDA is found by itself: TILEWIRE_HAS_CUDA says whether the .cu parts are built. TILEWIRE_CUDA=ON makes its absence an
# error, OFF never looks.
set(TILEWIRE_HAS_CUDA OFF)
add_custom_target(gpu_programs)  # tests and benches that need a GPU: all that scripts/run_gpu runs
set(TILEWIRE_CUDA_MINIMUM 12.9)
if(NOT TILEWIRE_CUDA STREQUAL "OFF")
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(TILEWIRE_NVCC nvcc PATHS /usr/local/cuda/bin)
    if(TILEWIRE_NVCC)
      set(CMAKE_CUDA_COMPILER "${TILEWIRE_NVCC}")
    endif()
  endif()
  if(NOT CMAKE_CUDA_HOST_COMPILER)
    set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
  endif()
  # Architectures are named per target by tilewire_cuda_flags, where the `a` variants can be asked for.
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL TILEWIRE_CUDA_MINIMUM)
      set(TILEWIRE_HAS_CUDA ON)
    endif()
  endif()
  if(TILEWIRE_HAS_CUDA)
    # Host code has lines for debuggers, as in CMakePresets.json; CMake's own -g costs a fifth of the time.
    set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O2 -Xcompiler=-g1 -DNDEBUG")
    set(CMAKE_CUDA_STANDARD 20)
    # CMake 3.25 does not know that nvcc has C++20.
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    if(TILEWIRE_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER "${TILEWIRE_CCACHE}")
    endif()
    message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION}: the CUDA parts are built")
  elseif(TILEWIRE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TILEWIRE_CUDA=ON, but no nvcc of version ${TILEWIRE_CUDA_MINIMUM} or newer was found "
      "(found: '${CMAKE_CUDA_COMPILER}' ${CMAKE_CUDA_COMPILER_VERSION}); put nvcc on PATH or set CUDACXX")
  else()
    message(STATUS "No CUDA ${TILEWIRE_CUDA_MINIMUM} or newer: the CUDA parts are left out")
  endif()
endif()

function(tilewire_cuda_flags target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-gencode=arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra
      $<$<BOOL:${TILEWIRE_WERROR}>:-Werror=all-warnings -Xcompiler=-Werror>>)
endfunction()

# For libraries whose kernels the budget test reads: it looks into the objects.
function(tilewire_kernel_flags target)
  tilewire_cuda_flags(${target})
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--no-compress>)
endfunction()

# tilewire_op_kernel(ag_gemm device_launch.cu ...): the library tilewire_ag_gemm_kernel, where CUDA is. The budget test
# reads the instances, device_*_<rows>x<columns>.cu.
function(tilewire_op_kernel op)
  if(NOT TILEWIRE_HAS_CUDA)
    return()
  endif()
  set(target tilewire_${op}_kernel)
  add_library(${target} STATIC ${ARGN})
  tilewire_kernel_flags(${target})
  tilewire_flags(${target})
  target_link_libraries(${target} PUBLIC tilewire_device_reduction tilewire_ops)
  target_link_libraries(${target} PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
  set_property(GLOBAL APPEND PROPERTY TILEWIRE_OP_KERNELS ${target})
endfunction()

# tilewire_cuda_test(schedule_device_test SOURCES schedule_device_test.cu DEPENDS tilewire_schedule): a program with its
# own main(), built where CUDA is; nothing elsewhere. It returns 0 for a pass and 77 when it needs a GPU and there is
# none (shown as skipped).
function(tilewire_cuda_test name)
  if(NOT TILEWIRE_BUILD_TESTS OR NOT TILEWIRE_HAS_CUDA)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  tilewire_cuda_flags(${name})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "cuda;${ARG_LABELS}" SKIP_RETURN_CODE 77)
  if("gpu" IN_LIST ARG_LABELS)
    add_dependencies(gpu_programs ${name})
  endif()
endfunction()

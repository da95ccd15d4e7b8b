# tilewire_layer(base SOURCES a.cc DEPENDS tilewire_x fmt::fmt): the static library tilewire_base of one layer.
function(tilewire_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  set(target "tilewire_${name}")
  add_library(${target} STATIC ${ARG_SOURCES})
  tilewire_flags(${target})
  tilewire_choose_fmt(ARG_DEPENDS)
  target_link_libraries(${target} PUBLIC ${ARG_DEPENDS})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
endfunction()

# tilewire_public_library(SOURCES communicator.cc LAYERS tilewire_base tilewire_schedule ...): the library `tilewire`
# (alias tilewire::tilewire), static or by BUILD_SHARED_LIBS shared. It holds the objects of every layer named, so that
# none of them is installed or seen by who links it. Its users see include/ and nothing else; what a user of the shared
# library may call is marked TILEWIRE_API. Tests that look inside name the layers beside it.
function(tilewire_public_library)
  cmake_parse_arguments(ARG "" "" "SOURCES;LAYERS" ${ARGN})
  set(objects "")
  set(build_only "")
  foreach(layer IN LISTS ARG_LAYERS)
    list(APPEND objects $<TARGET_OBJECTS:${layer}>)
    list(APPEND build_only $<BUILD_INTERFACE:${layer}>)
  endforeach()
  add_library(tilewire ${ARG_SOURCES} ${objects})
  add_library(tilewire::tilewire ALIAS tilewire)
  tilewire_flags(tilewire)
  set(own_depends fmt::fmt)
  tilewire_choose_fmt(own_depends)
  target_link_libraries(tilewire PRIVATE ${build_only} ${own_depends} Threads::Threads)
  target_compile_features(tilewire PUBLIC cxx_std_20)
  target_include_directories(tilewire
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE ${PROJECT_SOURCE_DIR}/src)
  set_target_properties(tilewire PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
endfunction()

# What each test includes, parsed once: half of the time that a test takes to compile. Tests do little work of their own,
# so that they gain next to nothing from more optimisation either.
function(tilewire_share_test_headers test)
  if(NOT TARGET tilewire_test_headers)
    set(source ${PROJECT_BINARY_DIR}/test_headers.cc)
    if(NOT EXISTS ${source})
      file(WRITE ${source} "int main() {}\n")
    endif()
    add_executable(tilewire_test_headers ${source})  # a program, as they are: the compiler's options must be the same
    tilewire_flags(tilewire_test_headers)
    tilewire_lower_optimisation(tilewire_test_headers)
    target_link_libraries(tilewire_test_headers PRIVATE GTest::gtest fmt::fmt)
    target_precompile_headers(tilewire_test_headers PRIVATE <gtest/gtest.h> <fmt/format.h> <algorithm> <array> <atomic>
      <chrono> <cstdint> <filesystem> <fstream> <functional> <map> <memory> <mutex> <optional> <random> <span> <string>
      <thread> <utility> <vector>)
  endif()
  tilewire_lower_optimisation(${test})
  target_precompile_headers(${test} REUSE_FROM tilewire_test_headers)
  # A test with definitions of its own does without.
  set_target_properties(tilewire_test_headers ${test} PROPERTIES PCH_WARN_INVALID OFF)
endfunction()

function(tilewire_lower_optimisation target)
  if(CMAKE_BUILD_TYPE STREQUAL RelWithDebInfo AND NOT TILEWIRE_SANITIZE)
    # With -Og gcc knows too little to tell what is uninitialised.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Og -Wno-maybe-uninitialized>)
  endif()
endfunction()

# tilewire_test(wire_test SOURCES wire_test.cc DEPENDS tilewire_schedule LABELS unit TIMEOUT 60 ONE_THREAD)
# ONE_THREAD: it starts no thread, so ThreadSanitizer has nothing to see there, and takes minutes for it. So it is with
# simulations. tests/one_thread.cc fails a program that does.
function(tilewire_test name)
  if(NOT TILEWIRE_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "ONE_THREAD" "TIMEOUT" "SOURCES;DEPENDS;LABELS;ARGS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(simulation IN_LIST ARG_LABELS)
    set(ARG_ONE_THREAD TRUE)
  endif()
  if(ARG_ONE_THREAD AND TILEWIRE_SANITIZE STREQUAL thread)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  tilewire_flags(${name})
  tilewire_share_test_headers(${name})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gtest GTest::gtest_main)
  if(ARG_ONE_THREAD AND NOT TILEWIRE_SANITIZE)
    if(NOT TARGET tilewire_one_thread)
      add_library(tilewire_one_thread OBJECT ${PROJECT_SOURCE_DIR}/tests/one_thread.cc)
    endif()
    target_link_libraries(${name} PRIVATE tilewire_one_thread)
  endif()
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
  # What may take long begins first, so that no processor is idle while the last one runs.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} COST ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()

# tilewire_bench(command_queue_bench SOURCES command_queue_bench.cc DEPENDS tilewire_transport)
function(tilewire_bench name)
  if(NOT TILEWIRE_BUILD_BENCH)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  tilewire_flags(${name})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} benchmark::benchmark benchmark::benchmark_main)
  set_property(GLOBAL APPEND PROPERTY TILEWIRE_BENCHES ${name})
endfunction()

function(tilewire_flags target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra $<$<BOOL:${TILEWIRE_WERROR}>:-Werror>>)
  if(TILEWIRE_SANITIZE)
    target_compile_options(${target} PUBLIC
      $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TILEWIRE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer>)
    # gcc 12 and 13 see uninitialised values that are none in code that the sanitizers have instrumented.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
    target_link_options(${target} PUBLIC -fsanitize=${TILEWIRE_SANITIZE})
  endif()
  # Sources with options of their own (the inner loops for newer processors) stay alone; CMake sees to that. So do
  # kernels, which newer CMakes would join too: their instances are what cores compile side by side.
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TILEWIRE_UNITY} UNITY_BUILD_BATCH_SIZE 16)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cu$")
  if(sources)
    set_source_files_properties(${sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

# Replaces fmt::fmt in the named list by its header-only form where TILEWIRE_FMT_HEADER_ONLY asks for it.
function(tilewire_choose_fmt list_name)
  set(items ${${list_name}})
  if(TILEWIRE_FMT_HEADER_ONLY)
    list(TRANSFORM items REPLACE "^fmt::fmt$" "$<BUILD_INTERFACE:fmt::fmt-header-only>")
  endif()
  set(${list_name} "${items}" PARENT_SCOPE)
endfunction()

# tilewire_python_module(_tilewire SOURCES module.cc): a nanobind extension module on the public library, with the stable
# ABI where Python and CMake have it, installed into the package folder as component `python`.
if(TILEWIRE_BUILD_PYTHON)
  find_package(Python 3.9 REQUIRED COMPONENTS Interpreter Development.Module ${SKBUILD_SABI_COMPONENT})
  execute_process(COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir
    OUTPUT_VARIABLE TILEWIRE_NANOBIND_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  find_package(nanobind CONFIG REQUIRED HINTS "${TILEWIRE_NANOBIND_DIR}")
endif()

function(tilewire_python_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  nanobind_add_module(${name} STABLE_ABI NB_STATIC NB_DOMAIN tilewire ${ARG_SOURCES})
  tilewire_flags(${name})
  target_link_libraries(${name} PRIVATE tilewire::tilewire ${ARG_DEPENDS})
  add_dependencies(python_parts ${name})
  install(TARGETS ${name} LIBRARY DESTINATION tilewire COMPONENT python)
endfunction()

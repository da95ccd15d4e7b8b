# Installs the build folder BINARY_DIR, builds examples/cpp against what was installed, and runs it:
#   cmake -DBINARY_DIR=... -DSOURCE_DIR=... -DCXX=... -DLINK_FLAGS=... -P find_package_test.cmake
set(work "${BINARY_DIR}/find_package_test")
file(REMOVE_RECURSE "${work}")
foreach(step IN ITEMS
    "${CMAKE_COMMAND};--install;${BINARY_DIR};--component;development;--prefix;${work}/installed"
    "${CMAKE_COMMAND};-S;${SOURCE_DIR}/examples/cpp;-B;${work}/build;-G;Ninja;-DCMAKE_PREFIX_PATH=${work}/installed;-DCMAKE_CXX_COMPILER=${CXX};-DCMAKE_EXE_LINKER_FLAGS=${LINK_FLAGS}"
    "${CMAKE_COMMAND};--build;${work}/build"
    "${work}/build/gather_and_multiply")
  execute_process(COMMAND ${step} COMMAND_ERROR_IS_FATAL ANY)
endforeach()

if(NOT EXISTS "${work}/installed/share/doc/tilewire/LICENSE")
  message(FATAL_ERROR "the licence does not come along")
endif()

# Nothing of the inside may be seen from outside.
file(GLOB_RECURSE installed RELATIVE "${work}/installed" "${work}/installed/*")
foreach(name IN LISTS installed)
  if(NOT name MATCHES "^bin/tilewire_link_test$|^include/tilewire/[a-z_]+\\.h$|/libtilewire\\.|^share/doc/tilewire/LICENSE$|/cmake/tilewire/tilewire[A-Za-z-]+\\.cmake$")
    message(FATAL_ERROR "installed, but not meant to be: ${name}")
  endif()
endforeach()
file(GLOB_RECURSE target_files "${work}/installed/*Targets*.cmake")
foreach(name IN LISTS target_files)
  file(READ "${name}" text)
  if(text MATCHES "tilewire_[a-z]+|${BINARY_DIR}|${SOURCE_DIR}")
    message(FATAL_ERROR "${name} names something of the build: ${CMAKE_MATCH_0}")
  endif()
endforeach()

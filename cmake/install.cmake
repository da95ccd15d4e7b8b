# What `cmake --install` puts where, so that find_package(tilewire) gives tilewire::tilewire.
if(TARGET tilewire)
  include(CMakePackageConfigHelpers)
  set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/tilewire")
  install(TARGETS tilewire EXPORT tilewireTargets COMPONENT development)
  install(DIRECTORY include/tilewire DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT development
    FILES_MATCHING PATTERN "*.h")
  install(EXPORT tilewireTargets NAMESPACE tilewire:: DESTINATION "${package_dir}" COMPONENT development)
  configure_package_config_file(cmake/tilewireConfig.cmake.in "${PROJECT_BINARY_DIR}/tilewireConfig.cmake"
    INSTALL_DESTINATION "${package_dir}")
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/tilewireConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
  install(FILES "${PROJECT_BINARY_DIR}/tilewireConfig.cmake" "${PROJECT_BINARY_DIR}/tilewireConfigVersion.cmake"
    DESTINATION "${package_dir}" COMPONENT development)
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT development)
endif()

if(TARGET tilewire AND TILEWIRE_BUILD_TESTS)
  set(link_flags "")
  if(TILEWIRE_SANITIZE)
    set(link_flags "-fsanitize=${TILEWIRE_SANITIZE}")
  endif()
  add_test(NAME find_package_test
    COMMAND "${CMAKE_COMMAND}" "-DBINARY_DIR=${PROJECT_BINARY_DIR}" "-DSOURCE_DIR=${PROJECT_SOURCE_DIR}"
      "-DCXX=${CMAKE_CXX_COMPILER}" "-DLINK_FLAGS=${link_flags}"
      -P "${PROJECT_SOURCE_DIR}/cmake/find_package_test.cmake")
  set_tests_properties(find_package_test PROPERTIES TIMEOUT 120 LABELS install)
endif()

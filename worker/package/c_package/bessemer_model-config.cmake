# find_package(bessemer_model CONFIG REQUIRED PATHS /path/to/the/bundle)
#
#   bessemer::model         the shared library; programs find it where it is now
#   bessemer::model_static  the same for static linking, if the bundle has libmodel.a
get_filename_component(_bessemer_bundle "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
file(GLOB _bessemer_library "${_bessemer_bundle}/model.so" "${_bessemer_bundle}/model.dylib" "${_bessemer_bundle}/model.dll")
get_filename_component(_bessemer_soname "${_bessemer_library}" NAME)
if(APPLE)
  set(_bessemer_soname "@rpath/${_bessemer_soname}")
endif()
if(WIN32)
  set(_bessemer_needed "")
else()
  find_package(Threads REQUIRED)
  set(_bessemer_needed "Threads::Threads;m")
endif()
if(NOT TARGET bessemer::model)
  add_library(bessemer::model SHARED IMPORTED)
  set_target_properties(bessemer::model PROPERTIES
    IMPORTED_LOCATION "${_bessemer_library}"
    IMPORTED_IMPLIB "${_bessemer_bundle}/model.lib"
    IMPORTED_SONAME "${_bessemer_soname}"
    INTERFACE_INCLUDE_DIRECTORIES "${_bessemer_bundle}"
    INTERFACE_LINK_LIBRARIES "${_bessemer_needed}")
  if(EXISTS "${_bessemer_bundle}/libmodel.a")
    add_library(bessemer::model_static STATIC IMPORTED)
    set_target_properties(bessemer::model_static PROPERTIES
      IMPORTED_LOCATION "${_bessemer_bundle}/libmodel.a"
      INTERFACE_INCLUDE_DIRECTORIES "${_bessemer_bundle}"
      INTERFACE_LINK_LIBRARIES "${_bessemer_needed}")
  endif()
endif()

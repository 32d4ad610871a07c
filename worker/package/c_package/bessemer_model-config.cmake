# find_package(bessemer_model CONFIG REQUIRED PATHS /path/to/the/bundle)
#
#   bessemer::model         the shared library; programs find it where it is now
#   bessemer::model_static  the same for static linking, if the bundle has libmodel.a
get_filename_component(_bessemer_bundle "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
find_package(Threads REQUIRED)
if(NOT TARGET bessemer::model)
  add_library(bessemer::model SHARED IMPORTED)
  set_target_properties(bessemer::model PROPERTIES
    IMPORTED_LOCATION "${_bessemer_bundle}/model.so"
    IMPORTED_SONAME model.so
    INTERFACE_INCLUDE_DIRECTORIES "${_bessemer_bundle}"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;m")
  if(EXISTS "${_bessemer_bundle}/libmodel.a")
    add_library(bessemer::model_static STATIC IMPORTED)
    set_target_properties(bessemer::model_static PROPERTIES
      IMPORTED_LOCATION "${_bessemer_bundle}/libmodel.a"
      INTERFACE_INCLUDE_DIRECTORIES "${_bessemer_bundle}"
      INTERFACE_LINK_LIBRARIES "Threads::Threads;m")
  endif()
endif()

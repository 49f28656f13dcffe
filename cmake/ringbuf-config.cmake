# find_package(ringbuf CONFIG): the target ringbuf::ringbuf, the static library with its headers, found from where this file is.
include(CMakeFindDependencyMacro)
find_dependency(Threads)

if(NOT TARGET ringbuf::ringbuf)
  get_filename_component(ringbuf_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
  add_library(ringbuf::ringbuf STATIC IMPORTED)
  set_target_properties(ringbuf::ringbuf PROPERTIES
    IMPORTED_LOCATION "${ringbuf_prefix}/lib/libringbuf.a"
    INTERFACE_INCLUDE_DIRECTORIES "${ringbuf_prefix}/include"
    INTERFACE_LINK_LIBRARIES Threads::Threads)
endif()

# find_package(ringbuf CONFIG): the target ringbuf::ringbuf, a static library with its headers.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include("${CMAKE_CURRENT_LIST_DIR}/ringbuf-targets.cmake")

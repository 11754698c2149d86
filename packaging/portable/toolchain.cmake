# Programs and libraries that run with glibc 2.28 and newer, and bring libstdc++ and the crypto libraries along. The
# environment names the folder that make-glibc filled.
set(glibc $ENV{CRYPTMPI_PORTABLE_GLIBC})
if(NOT EXISTS ${glibc}/made)
  message(FATAL_ERROR "CRYPTMPI_PORTABLE_GLIBC names no folder that packaging/portable/make-glibc filled: '${glibc}'")
endif()

# Debian's own libraries need a newer glibc than the one linked against; that is their affair: they are not shipped.
# No build id: it would differ with the folder that is built in.
set(flags "-B${glibc} -L${glibc} ${glibc}/old-glibc.o -static-libstdc++ -shared-libgcc -Wl,--allow-shlib-undefined -Wl,--build-id=none")
set(CMAKE_EXE_LINKER_FLAGS_INIT "${flags}")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "${flags}")
# What is linked statically into a module is seen by nobody else.
set(CMAKE_MODULE_LINKER_FLAGS_INIT "${flags} -Wl,--exclude-libs,ALL")
# In a library of its own each until 2.34.
set(CMAKE_C_STANDARD_LIBRARIES_INIT "-Wl,--as-needed -lpthread -ldl -lutil -lrt -lm")
set(CMAKE_CXX_STANDARD_LIBRARIES_INIT "${CMAKE_C_STANDARD_LIBRARIES_INIT}")

# What is made says nothing of the folder that it was made in.
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH portable_sources)
cmake_path(GET portable_sources PARENT_PATH portable_sources)
set(CMAKE_C_FLAGS_INIT "-ffile-prefix-map=${CMAKE_BINARY_DIR}=build -ffile-prefix-map=${portable_sources}=.")
set(CMAKE_CXX_FLAGS_INIT "${CMAKE_C_FLAGS_INIT}")

set(OPENSSL_USE_STATIC_LIBS ON CACHE BOOL "")
# Nothing is known of the system here yet.
find_library(IPSEC_MB_LIBRARY libIPSec_MB.a PATHS /usr/lib/x86_64-linux-gnu REQUIRED)
find_library(SODIUM_LIBRARY libsodium.a PATHS /usr/lib/x86_64-linux-gnu REQUIRED)
foreach(left_out BORINGSSL CRYPTOPP MBEDCRYPTO)
  set(${left_out}_LIBRARY OFF CACHE STRING "Not in the portable build")
endforeach()

# Whose work is inside of the binaries: their licences go along.
set(CRYPTMPI_LICENCES_OF libcli11-dev libexpected-dev libfmt-dev libipsec-mb-dev libsodium-dev libssl-dev
  libstdc++-12-dev libtomlplusplus-dev nlohmann-json3-dev robin-map-dev
  CACHE STRING "Debian packages whose licences are installed")

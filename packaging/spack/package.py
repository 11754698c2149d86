"""Spack's recipe (Spack 1.0 and newer), for the folder `packages/cryptmpi` of a repository of your own: `spack
dev-build cryptmpi@0.9.0` then builds this source."""

from spack.package import depends_on, join_path, license, variant, version
from spack_repo.builtin.build_systems.cmake import CMakePackage, generator


class Cryptmpi(CMakePackage):
    """Encrypts and authenticates the traffic of unmodified MPI programs between nodes."""

    license("Apache-2.0 AND MIT")

    version("0.9.0")

    variant("libsodium", default=True, description="Build the cipher module libsodium, which starts jobs sooner")
    variant("cryptopp", default=False, description="Build the cipher module cryptopp")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3.9:", type=("build", "run"))
    depends_on("py-jinja2", type="build")
    depends_on("cli11", type="build")
    depends_on("tomlplusplus", type="build")
    depends_on("nlohmann-json", type="build")
    depends_on("fmt", type="build")
    depends_on("robin-map", type="build")
    depends_on("tl-expected", type="build")
    depends_on("libfabric", type="build")
    depends_on("ucx", type="build")
    depends_on("openssl@3:")
    depends_on("libsodium", when="+libsodium")
    depends_on("cryptopp", when="+cryptopp")
    # The library for the ABI of this MPI is built, and that for the standard ABI, which needs none.
    depends_on("mpi")

    generator("ninja")

    def cmake_args(self):
        found = self.spec["mpi"]
        openmpi = found.name == "openmpi"
        return [
            self.define("CRYPTMPI_TESTS", False),
            self.define("CRYPTMPI_WERROR", False),
            self.define("CRYPTMPI_MPICH_HEADERS", False if openmpi else found.prefix.include),
            self.define("CRYPTMPI_OPENMPI_HEADERS", found.prefix.include if openmpi else False),
            self.define("CRYPTMPI_OPENMPI_LIBRARY", join_path(found.prefix.lib, "libmpi.so") if openmpi else False),
        ]

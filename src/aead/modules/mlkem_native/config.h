/* How mlkem-native is built for the module: ML-KEM-768 alone, in one piece, with what is random from its caller. */
#ifndef CRYPTMPI_MLKEM_NATIVE_CONFIG_H
#define CRYPTMPI_MLKEM_NATIVE_CONFIG_H

#define MLK_CONFIG_PARAMETER_SET 768
#define MLK_CONFIG_NAMESPACE_PREFIX cryptmpi_mlkem
#define MLK_CONFIG_INTERNAL_API_QUALIFIER static
#define MLK_CONFIG_NO_RANDOMIZED_API
#define MLK_CONFIG_SERIAL_FIPS202_ONLY
#define MLK_CONFIG_FIPS202_CUSTOM_HEADER "fips202.h"

#endif

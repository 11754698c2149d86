// All settings: their names, and how what was given becomes what Settings has.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "config/environment.hpp"
#include "config/settings.hpp"
#include "config/values.hpp"

namespace cryptmpi::config {

struct KnownSetting {
    std::string_view name;  // in the file
    Result<void> (*set)(Settings&, const Given&, const Environment&);
    bool is_path = false;

    std::string variable() const;
};

std::span<const KnownSetting> known_settings();

}  // namespace cryptmpi::config

// JSON of ours, as it is read: parts, reports, notes, attestations, profiles.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace cryptmpi {

/// Ours are integers. A larger number than an integer holds would be read as any other.
enum class Numbers { integers, any };

/// Looks a text through before anything is made of it, and stops at the first thing that ours never has. Two values of
/// one key are two documents under one signature, for readers that take the first and for those that take the last;
/// and what is nested without end ends whoever copies or prints it, by recursion.
template <class Json>
class JsonGuard : public nlohmann::json_sax<Json> {
public:
    static constexpr std::size_t kDeepest = 32;  // levels; ours have seven

    explicit JsonGuard(Numbers numbers) : numbers_(numbers) {}

    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(typename Json::number_integer_t) override { return true; }
    bool number_unsigned(typename Json::number_unsigned_t) override { return true; }
    // protocol: P9
    bool number_float(typename Json::number_float_t, const std::string&) override { return numbers_ == Numbers::any; }
    bool string(std::string&) override { return true; }
    bool binary(typename Json::binary_t&) override { return false; }
    bool start_object(std::size_t) override { return enter(); }
    bool start_array(std::size_t) override { return enter(); }
    // protocol: P6
    bool key(std::string& name) override { return keys_.back().insert(name).second; }
    bool end_object() override { return leave(); }
    bool end_array() override { return leave(); }
    bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

private:
    // protocol: P7
    bool enter() {
        keys_.emplace_back();
        return keys_.size() <= kDeepest;
    }
    bool leave() {
        keys_.pop_back();
        return true;
    }

    Numbers numbers_;
    std::vector<std::set<std::string>> keys_;  // of each object or list that is not at its end
};

/// Discarded (`is_discarded`): no JSON, an object with a key twice, more levels than anything of ours has, or numbers
/// that are not wanted.
template <class Json>
Json parse_json(std::string_view text, Numbers numbers = Numbers::integers) {
    JsonGuard<Json> guard(numbers);
    if (!Json::sax_parse(text, &guard)) return Json(Json::value_t::discarded);
    return Json::parse(text, nullptr, false);
}

}  // namespace cryptmpi

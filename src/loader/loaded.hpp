// What the dynamic loader has loaded into this process, and where its objects refer to functions by name.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace cryptmpi::loader {

struct Dynamic;  // of an object

/// A place that the loader filled, or will fill, with a function's address.
struct Reference {
    const char* name;
    bool weak;      // may stay null
    bool variable;  // in the object's data, which it may have changed since
    void* own;      // the object's own function of this name, or null
    void** place;
    const Dynamic& object;
    std::size_t symbol;

    /// Of the function that is meant; null: whichever comes first. It is looked for: few are asked.
    const char* version() const;
};

class LoadedObject {
public:
    /// All but the vDSO and this library.
    static std::vector<LoadedObject> all();

    const std::string& file() const { return file_; }
    bool is_program() const { return file_.empty(); }
    /// The object that has this address; null: none of these.
    static const LoadedObject* holding(const std::vector<LoadedObject>& objects, const void* address);

    bool holds(const void* address) const;
    /// The object's own function that others find by this name, or null.
    void* exported(std::string_view name) const;
    void each_exported(const std::function<void(const char* name, void* function)>& action) const;

    /// Gives each place the address that `address_for` answers; the value that is there leaves it alone.
    void bind(const std::function<void*(const Reference&)>& address_for) const;

private:
    explicit LoadedObject(const dl_phdr_info& information);
    Dynamic dynamic() const;
    void each_reference(const std::function<void(const Reference&)>& action) const;

    std::string file_;
    ElfW(Addr) base_;
    const ElfW(Phdr) * headers_;
    int header_count_;
};

// The same of the loader's own list, without memory of the heap or a lock: for lookups that come before there is any.
// Objects that go while they are asked for are the caller's affair.

/// The object that has this address; null: none.
const link_map* object_with(const void* address);
/// Of `first`, which is there from the start: what the loader loaded after it.
bool comes_behind(const link_map& object, const link_map& first);
/// The object's own function that others find by this name, or null.
void* function_of(const link_map& object, std::string_view name);
/// That of the first object behind this one that has it.
void* function_behind(const link_map& object, std::string_view name);

}  // namespace cryptmpi::loader

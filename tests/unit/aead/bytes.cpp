#include "bytes.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace cryptmpi::aead::test {

Bytes from_hex(std::string_view hex) {
    Bytes bytes;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
        bytes.push_back(static_cast<std::uint8_t>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
    return bytes;
}

Bytes random_bytes(std::mt19937& random, std::size_t size) {
    Bytes bytes(size);
    for (std::size_t at = 0; at < size; at += sizeof(std::uint32_t)) {
        const auto word = static_cast<std::uint32_t>(random());
        std::memcpy(bytes.data() + at, &word, std::min(sizeof word, size - at));
    }
    return bytes;
}

std::string module_folder() {
    const char* chosen = std::getenv("CRYPTMPI_TEST_MODULES");
    return chosen != nullptr ? chosen : CRYPTMPI_MODULE_FOLDER;
}

Module loaded_module(const std::string& name) {
    auto module = load(module_folder(), name);
    if (!module) throw std::runtime_error(module.error().line);
    return *module;
}

std::vector<iovec> random_pieces(std::mt19937& random, Bytes& bytes) {
    std::vector<iovec> pieces;
    std::size_t at = 0;
    do {
        const std::size_t left = bytes.size() - at;
        const std::size_t limit = random() % 2 == 0 ? 40 : left;
        const std::size_t size = random() % 5 == 0 ? 0 : std::min<std::size_t>(left, random() % (limit + 1));
        pieces.push_back({size == 0 && random() % 2 == 0 ? nullptr : bytes.data() + at, size});
        at += size;
        if (pieces.size() == 500 && at < bytes.size()) {
            pieces.push_back({bytes.data() + at, bytes.size() - at});
            at = bytes.size();
        }
    } while (at < bytes.size());
    if (pieces.size() == 1) pieces.push_back({nullptr, 0});  // one piece is another path: see whole()
    return pieces;
}

std::vector<iovec> whole(Bytes& bytes) {
    return {{bytes.data(), bytes.size()}};
}

Cipher::Cipher(const Module& module, Suite suite, const Bytes& key)
    : aead_(module.api->aead), context_(aead_->create(static_cast<int>(suite), key.data()), aead_->destroy) {
    if (!context_) throw std::runtime_error(std::string(module.api->name) + " made no context");
}

Cipher::Sealed Cipher::seal(const Bytes& nonce, const Bytes& aad, const std::vector<iovec>& in) {
    std::size_t size = 0;
    for (const iovec& piece : in) size += piece.iov_len;
    Sealed sealed{CRYPTMPI_FAILED, Bytes(size), Bytes(CRYPTMPI_TAG_SIZE)};
    sealed.status = aead_->seal(context_.get(), nonce.data(), aad.data(), aad.size(), in.data(), in.size(),
                                sealed.text.data(), sealed.tag.data());
    return sealed;
}

int Cipher::open(const Bytes& nonce, const Bytes& aad, const Bytes& text, const Bytes& tag,
                 const std::vector<iovec>& out) {
    return aead_->open(context_.get(), nonce.data(), aad.data(), aad.size(), text.data(), text.size(), out.data(),
                       out.size(), tag.data());
}

}  // namespace cryptmpi::aead::test

// Socket conformance: `--list`, or `--case NAME [--seed N]`; cases with two roles also take `--role server --listen
// ADDRESS
// --port-file FILE` and `--role client --connect ADDRESS PORT`. The transcript goes to standard output.
#include <arpa/inet.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "support.hpp"

namespace sockets {
int run_child_program(std::string_view name);  // processes.cpp
}

namespace {

using namespace sockets;

struct Options {
    std::string name;
    std::string role;
    std::string address;
    std::string port;
    std::string port_file;
    std::uint64_t seed = 1;
};

[[noreturn]] void usage(const char* what) {
    std::fprintf(stderr, "sockets: %s; see the head of main.cpp\n", what);
    std::exit(2);
}

void set_address(Context& context, const std::string& address, const std::string& port) {
    const auto number = htons(static_cast<std::uint16_t>(std::strtoul(port.c_str(), nullptr, 10)));
    auto* v4 = reinterpret_cast<sockaddr_in*>(&context.address);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&context.address);
    if (inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = number;
        context.address_size = sizeof *v4;
    } else if (inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = number;
        context.address_size = sizeof *v6;
    } else {
        usage("bad address");
    }
}

void start_listening(Context& context, const Options& options) {
    set_address(context, options.address, "0");
    auto* address = reinterpret_cast<sockaddr*>(&context.address);
    const int one = 1;
    context.listener = ::socket(context.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::setsockopt(context.listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        ::bind(context.listener, address, context.address_size) != 0 || ::listen(context.listener, 128) != 0 ||
        ::getsockname(context.listener, address, &context.address_size) != 0) {
        give_up("listen");
    }
    // Renamed into place, so that whoever waits for the file finds it whole.
    const std::string unfinished = options.port_file + ".new";
    std::FILE* file = std::fopen(unfinished.c_str(), "w");
    if (file == nullptr) {
        give_up("the port file");
    }
    std::fprintf(file, "%d\n", ntohs(reinterpret_cast<sockaddr_in*>(address)->sin_port));
    std::fclose(file);
    if (std::rename(unfinished.c_str(), options.port_file.c_str()) != 0) {
        give_up("the port file");
    }
}

void list_cases() {
    constexpr const char* kKinds[] = {"one-process", "two-roles", "sealed-only", "two-nodes"};
    for (const Case& entry : cases()) {
        std::printf("%s %s\n", entry.name.c_str(), kKinds[static_cast<int>(entry.kind)]);
    }
}

}  // namespace

int main(int count, char** arguments) {
    Options options;
    for (int at = 1; at < count; ++at) {
        const std::string_view option = arguments[at];
        const auto value = [&]() -> const char* { return ++at < count ? arguments[at] : (usage("missing value"), ""); };
        if (option == "--list") {
            list_cases();
            return 0;
        } else if (option == "--child") {
            return run_child_program(value());
        } else if (option == "--case") {
            options.name = value();
        } else if (option == "--seed") {
            options.seed = std::strtoull(value(), nullptr, 10);
        } else if (option == "--role") {
            options.role = value();
        } else if (option == "--listen") {
            options.address = value();
        } else if (option == "--port-file") {
            options.port_file = value();
        } else if (option == "--connect") {
            options.address = value();
            options.port = value();
        } else {
            usage("unknown option");
        }
    }

    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        ::setrlimit(RLIMIT_NOFILE, &files);
    }
    ::alarm(120);  // nothing may hang

    for (const Case& entry : cases()) {
        if (entry.name != options.name) {
            continue;
        }
        Context context;
        context.seed = options.seed;
        context.random = Random(options.seed);
        context.self = "/proc/self/exe";
        if (options.role == "server") {
            start_listening(context, options);
            entry.server(context);
        } else {
            if (!options.address.empty()) {
                set_address(context, options.address, options.port);
            }
            entry.run(context);
        }
        note("end");
        return 0;
    }
    usage("no such case");
}

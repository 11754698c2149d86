// What goes past the doors of the fabric layer, and what goes through them: a line for each.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <ucp/api/ucp.h>
#include <uct/api/uct.h>
#include <unistd.h>

#define DEVICE "/dev/infiniband/uverbs77"  // no node has it: who may open it is told that it is not there

static void say(const char* what, int error) {
    printf("%s: %s\n", what, error == 0 ? "done" : strerror(error));
}

static void open_device(void) {
    const int fd = open(DEVICE, O_RDWR);
    say("device", fd < 0 ? errno : 0);
}

/// What UCX's library of services exports: no door was opened for it.
ucs_status_t ucs_socket_create(int domain, int type, int* fd);

static void send_datagram_of_ucx(const char* to) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(9)};
    inet_pton(AF_INET, to, &address.sin_addr);
    int fd = -1;
    (void)ucs_socket_create(AF_INET, SOCK_DGRAM, &fd);
    const long sent = sendto(fd, "x", 1, 0, (struct sockaddr*)&address, sizeof address);
    say("datagram of UCX", sent < 0 ? errno : 0);
    close(fd);
}

static int is_asking;

/// libfabric asks libc for the addresses of this node, and finds this: what it calls may open devices, as libibverbs
/// does.
int getifaddrs(struct ifaddrs** addresses) {
    if (is_asking++ == 1) {
        const int fd = open(DEVICE, O_RDWR);
        say("device of libfabric", fd < 0 ? errno : 0);
    }
    *addresses = NULL;
    return 0;
}

void freeifaddrs(struct ifaddrs* addresses) {
    (void)addresses;
}

static void ask_libfabric(void) {
    struct fi_info* found = NULL;
    is_asking = 1;
    (void)fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, NULL, &found);
    fi_freeinfo(found);
}

static void send_datagram(const char* to) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(9)};
    inet_pton(AF_INET, to, &address.sin_addr);
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    const long sent = sendto(fd, "x", 1, 0, (struct sockaddr*)&address, sizeof address);
    say("datagram", sent < 0 ? errno : 0);
    close(fd);
}

/// The memory domain of tcp.
static void open_transport(void) {
    uct_component_h* components = NULL;
    unsigned count = 0;
    if (uct_query_components(&components, &count) != UCS_OK) return;
    for (unsigned i = 0; i < count; ++i) {
        uct_component_attr_t attributes = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME};
        if (uct_component_query(components[i], &attributes) != UCS_OK || strcmp(attributes.name, "tcp") != 0) continue;
        uct_md_config_t* config = NULL;
        uct_md_h domain = NULL;
        if (uct_md_config_read(components[i], NULL, NULL, &config) != UCS_OK) continue;
        const ucs_status_t status = uct_md_open(components[i], "tcp", config, &domain);
        printf("transport: %s\n", ucs_status_string(status));
        if (status == UCS_OK) uct_md_close(domain);
        uct_config_release(config);
    }
    uct_release_component_list(components);
}

/// ucp as a plugin finds it: past whatever stands before it.
static void open_hidden_ucp(void) {
    void* const library = dlopen("libucp.so.0", RTLD_LAZY);
    ucs_status_t (*const init)(unsigned, unsigned, const ucp_params_t*, const ucp_config_t*, ucp_context_h*) =
        (void*)dlsym(library, "ucp_init_version");
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_context_h context = NULL;
    const ucs_status_t status = init(UCP_API_MAJOR, UCP_API_MINOR, &params, NULL, &context);
    printf("hidden ucp: %s\n", status == UCS_OK ? "done" : "no network");
}

int main(int count, char** words) {
    if (count < 2) return 2;
    send_datagram_of_ucx(words[1]);
    open_device();
    ask_libfabric();
    send_datagram(words[1]);
    open_transport();
    open_hidden_ucp();
    return 0;
}

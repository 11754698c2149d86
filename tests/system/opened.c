/* A program that knows nothing of MPI and opens a plugin that does (whisper.c).
 *
 *     opened HOW PLUGIN ARGUMENT...    HOW: "local", "deepbind" (its own libraries come first for the plugin),
 * "namespace" (dlmopen)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
    void* plugin = strcmp(argv[1], "namespace") == 0  ? dlmopen(LM_ID_NEWLM, argv[2], RTLD_NOW)
                   : strcmp(argv[1], "deepbind") == 0 ? dlopen(argv[2], RTLD_NOW | RTLD_DEEPBIND)
                                                      : dlopen(argv[2], RTLD_LAZY);
    int (*whisper)(int, char**) = plugin == NULL ? NULL : (int (*)(int, char**))dlsym(plugin, "whisper");
    if (whisper == NULL) {
        fprintf(stderr, "opened: %s\n", dlerror());
        return 1;
    }
    return whisper(argc - 2, argv + 2);
}

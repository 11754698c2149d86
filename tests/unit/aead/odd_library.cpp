// A library that is not where the loader looks.
extern "C" __attribute__((visibility("default"))) int odd_library_answer() {
    return 42;
}

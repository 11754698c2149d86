/* Runs a program, and writes the processor time that it and its children took, in microseconds, into FOLDER/usage.PID:
 * usage FOLDER PROGRAM [ARGUMENT...] */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    const pid_t child = fork();
    if (child == 0) {
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    int status;
    struct rusage use;
    if (child < 0 || wait4(child, &status, 0, &use) != child) return 1;
    char path[4096];
    snprintf(path, sizeof(path), "%s/usage.%d", argv[1], (int)getpid());
    FILE* file = fopen(path, "w");
    if (file == NULL) return 1;
    fprintf(file, "%.0f\n",
            (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e6 + use.ru_utime.tv_usec + use.ru_stime.tv_usec);
    fclose(file);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

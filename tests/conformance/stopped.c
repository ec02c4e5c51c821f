// Stops, and becomes the command of its arguments when somebody lets it go on: linewise attaches meanwhile. A shell would
// change the environment.
#include <signal.h>
#include <unistd.h>

int main(int count, char **arguments) {
    if (count < 2) return 2;
    raise(SIGSTOP);
    execv(arguments[1], arguments + 1);
    return 127;
}

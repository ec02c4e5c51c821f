/* A server with a fibre for each connection, and its clients in the same program. Each fibre is written as code
 * that waits; one thread serves all connections. When all clients are done the runtime is shut down: the
 * accept that waits returns LINEWISE_FIBRES_CANCELLED. */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "linewise_fibres.h"

enum { CLIENTS = 100, MESSAGES = 20 };

#define CHECK(call)                                                                                \
    do {                                                                                           \
        int32_t code = (call);                                                                     \
        if (code != LINEWISE_FIBRES_OK) {                                                          \
            fprintf(stderr, "%s: error %d: %s\n", #call, code, linewise_fibres_last_error());      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct server {
    struct linewise_fibres_io *listener;
    struct sockaddr_in address;
    int accepted; /* by one fibre */
    int cancelled;
};

static int32_t write_all(struct linewise_fibres_io *io, const char *bytes, size_t count)
{
    int32_t code = LINEWISE_FIBRES_OK;
    while (count > 0 && code == LINEWISE_FIBRES_OK) {
        size_t done = 0;
        code = linewise_fibres_io_write(io, bytes, count, &done);
        bytes += done;
        count -= done;
    }
    return code;
}

/* Sends back what comes, until the other side closes. */
static void *serve(void *argument)
{
    struct linewise_fibres_io *connection = argument;
    char buffer[256];
    size_t count;
    while (linewise_fibres_io_read(connection, buffer, sizeof buffer, &count) == LINEWISE_FIBRES_OK &&
           count > 0 && write_all(connection, buffer, count) == LINEWISE_FIBRES_OK)
        continue;
    CHECK(linewise_fibres_io_close(connection));
    return NULL;
}

static void *accept_all(void *argument)
{
    struct server *server = argument;
    struct linewise_fibres_io *connection;
    int32_t code;
    while ((code = linewise_fibres_io_accept(server->listener, &connection)) == LINEWISE_FIBRES_OK) {
        server->accepted++;
        CHECK(linewise_fibres_pool_spawn(NULL, NULL, serve, connection, NULL));
    }
    server->cancelled = code == LINEWISE_FIBRES_CANCELLED;
    return NULL;
}

/* Returns its argument if all came back as it was sent. */
static void *client(void *argument)
{
    struct server *server = argument;
    struct linewise_fibres_io *io;
    CHECK(linewise_fibres_io_open(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), 1, &io));
    CHECK(linewise_fibres_io_connect(io, &server->address, sizeof server->address));
    void *result = argument;
    for (int i = 0; i < MESSAGES; i++) {
        char message[32], answer[32];
        size_t length = (size_t)snprintf(message, sizeof message, "message %d", i), got = 0;
        CHECK(write_all(io, message, length));
        while (got < length) {
            size_t count;
            CHECK(linewise_fibres_io_read(io, answer + got, length - got, &count));
            if (count == 0)
                break;
            got += count;
        }
        if (got != length || memcmp(message, answer, length) != 0)
            result = NULL;
    }
    CHECK(linewise_fibres_io_close(io));
    return result;
}

int main(void)
{
    struct server server = {0};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    server.address.sin_family = AF_INET;
    server.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof server.address;
    if (fd < 0 || bind(fd, (struct sockaddr *)&server.address, length) != 0 || listen(fd, 128) != 0 ||
        getsockname(fd, (struct sockaddr *)&server.address, &length) != 0) {
        perror("a socket that listens");
        return 1;
    }
    CHECK(linewise_fibres_io_open(fd, 1, &server.listener));

    struct linewise_fibres_builder *builder;
    CHECK(linewise_fibres_builder_open(&builder));
    CHECK(linewise_fibres_builder_pool(builder, "server", 1));
    CHECK(linewise_fibres_builder_pool(builder, "clients", 1));
    struct linewise_fibres_runtime *runtime;
    CHECK(linewise_fibres_start(builder, &runtime));
    struct linewise_fibres_pool *servers, *clients;
    CHECK(linewise_fibres_runtime_pool(runtime, "server", &servers));
    CHECK(linewise_fibres_runtime_pool(runtime, "clients", &clients));

    struct linewise_fibres_handle *accepting, *handles[CLIENTS];
    CHECK(linewise_fibres_pool_spawn(servers, NULL, accept_all, &server, &accepting));
    for (int i = 0; i < CLIENTS; i++)
        CHECK(linewise_fibres_pool_spawn(clients, NULL, client, &server, &handles[i]));
    int right = 0;
    for (int i = 0; i < CLIENTS; i++) {
        void *value;
        CHECK(linewise_fibres_join(handles[i], &value));
        right += value == &server;
    }
    CHECK(linewise_fibres_pool_close(servers));
    CHECK(linewise_fibres_pool_close(clients));
    CHECK(linewise_fibres_close(runtime));
    CHECK(linewise_fibres_join(accepting, NULL));
    CHECK(linewise_fibres_io_close(server.listener));
    printf("%d clients served of %d, %s\n", right, server.accepted,
           server.cancelled ? "and the server was told to end" : "but the server was not told to end");
    return right == CLIENTS && server.accepted == CLIENTS && server.cancelled ? 0 : 1;
}

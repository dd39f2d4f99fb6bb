/* tutti store: serve a key-value store until a signal comes. */
#include "base/log.h"
#include "base/text/parse.h"
#include "cli/cli.h"
#include "net/net.h"
#include "net/secure/secret.h"

#include <tutti/store.h>

#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>

static const tt__flag store_flags[] = {
    TT__VALUE("host", 'a', "HOST", "address to serve on (default 127.0.0.1; 0.0.0.0 or :: for all there are)"),
    TT__VALUE("port", 'p', "PORT",
              "port to serve on (default 29500; 0 = any free one, which the first line of output names)"),
    TT__VALUE("store-auth", 'u', "WHO",
              "who is served without proving that it has the job secret: local (default) this user's processes on this "
              "machine, as PyTorch's clients; required: nobody; none: all, from anywhere",
              .offer = TT__STORE_AUTHS),
    TT__VALUE("store-memory", 'm', "MIB",
              "how much memory it may take, in MiB (default: an eighth of the machine's, at least 256); clients who "
              "want more are closed and logged"),
    TT__VALUE("secret-file", 's', "FILE",
              "the job secret (default: TT_SECRET, or the file TT_SECRET_FILE, if there is one); make one with: (umask "
              "077; set -C; openssl rand -hex 32 >FILE)",
              .offer = TT__OFFER_FILES),
    {0}};

static int store_main(int argc, char **argv);

const tt__command tt__cmd_store = {
    .name = "store",
    .what = "serve the key-value store that ranks meet through",
    .usage = "[--host HOST] [--port PORT] [--store-auth WHO] [--store-memory MIB] [--secret-file FILE]",
    .text =
        "Serve the key-value store that the ranks of a job meet through, until SIGINT or SIGTERM. It speaks the wire "
        "protocol of PyTorch's TCPStore, that of 1.13 and that of 2.x; each client is understood by its first bytes.",
    .flags = store_flags,
    .notes =
        "TT_TLS=1 encrypts the connections of Tutti's clients, which need it too. 'tutti run' serves a store itself; "
        "use this one to start ranks by hand:\n"
        "\n"
        "  tutti store &\n"
        "  export MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 WORLD_SIZE=2\n"
        "  export TORCHELASTIC_USE_AGENT_STORE=True\n"
        "  RANK=0 ./program & RANK=1 ./program\n"
        "\n"
        "From Python: torch.distributed.TCPStore(\"127.0.0.1\", 29500, is_master=False)",
    .run = store_main,
};

_Static_assert(TT_STORE_DEFAULT_PORT == 29500, "the help says so");

/* Raise the limit of descriptors: every client is one. */
static void allow_many_clients(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void announce_address(const char *host, int port) {
    char where[TT__NET_ENDPOINT_SIZE];
    tt__net_endpoint_text(host, port, where);
    printf("serving on %s\n", where);
    fflush(stdout);
}

static int serve_until_signal(const tt_store_server_new_args *args) {
    tt_store_server *server;
    sigset_t stop;
    int signal;
    sigemptyset(&stop);
    sigaddset(&stop, SIGINT);
    sigaddset(&stop, SIGTERM);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    tt__log_to_stderr("tutti store", TT_LOG_WARNING);
    allow_many_clients();
    if (tt_store_server_new(&server, args->host, args->port, .auth = args->auth, .secret = args->secret,
                            .max_memory = args->max_memory)) {
        tt_report();
        return TT__EXIT_FAILED;
    }
    announce_address(args->host, tt_store_server_port(server));
    sigwait(&stop, &signal);
    tt_store_server_free(server);
    return TT__EXIT_OK;
}

static int store_main(int argc, char **argv) {
    const char *host = "127.0.0.1", *secret_file = NULL;
    char bare[TT__NET_HOST_SIZE];
    char secret[TT__SECRET_MAX + 1], words[64];
    int64_t port = TT_STORE_DEFAULT_PORT, mib = 0;
    int auth = TT_STORE_AUTH_LOCAL;
    for (int c; (c = tt__cli_next_flag(&tt__cmd_store, argc, argv, NULL)) != -1;) {
        if (c == 'h' || c == '?')
            return c == 'h' ? TT__EXIT_OK : TT__EXIT_USAGE;
        if (c == 'a')
            host = tt__net_bare_host(optarg, bare);
        else if (c == 's')
            secret_file = optarg;
        else if (c == 'u' && (auth = tt__cli_choice(TT__STORE_AUTHS, optarg)) < 0)
            return tt__cli_usage_error("store", "--store-auth: expected %s, got \"%.100s\"",
                                       tt__cli_choices_text(TT__STORE_AUTHS, words, sizeof words), optarg);
        else if (c == 'm' && tt__parse_i64("--store-memory", optarg, 1, 1 << 24, &mib))
            return tt__cli_usage_error("store", "%s", tt_last_error());
        else if (c == 'p' && tt__parse_i64("--port", optarg, 0, 65535, &port))
            return tt__cli_usage_error("store", "%s", tt_last_error());
    }
    if (secret_file && tt__secret_read_file(secret_file, secret)) {
        tt_report();
        return TT__EXIT_FAILED;
    }
    const tt_store_server_new_args args = {.host = host,
                                           .port = (int)port,
                                           .auth = (tt_store_auth)auth,
                                           .secret = secret_file ? secret : NULL,
                                           .max_memory = (size_t)mib << 20};
    return serve_until_signal(&args);
}
